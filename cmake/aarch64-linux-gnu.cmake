# Cross build for arm64 Linux, run under qemu: packages crossbuild-essential-arm64, qemu-user, libc6:arm64.
#   cmake --preset arm64
# The programs run on the libraries of libc6:arm64, its loader included: with the loader of the cross compiler's package
# (qemu's -L) and that libc, which is newer, creating a thread never ends.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 CACHE STRING "Runs the tests")

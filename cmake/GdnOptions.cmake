# Every option of the build. A part that is asked for (ON) and missing is an error; AUTO says what it found.

function(gdn_tristate name text)
    set(${name} AUTO CACHE STRING "${text} (AUTO, ON or OFF)")
    set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
    if(NOT ${name} MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "${name} is '${${name}}'; allowed are AUTO, ON and OFF")
    endif()
endfunction()

gdn_tristate(GDN_CUDA "Build the CUDA backend module")
gdn_tristate(GDN_OPENBLAS "Use OpenBLAS for the CPU backend's generic products")
gdn_tristate(GDN_OPENMP "Use OpenMP in the CPU backend")

option(GDN_MODULES "Load backends from modules at run time (needs dlopen)" ON)
option(GDN_BUILD_SHARED "Build the shared library" ON)
option(GDN_BUILD_STATIC "Build and install the static library" ON)
option(GDN_BUILD_TOOLS "Build the gdn command-line program" ${PROJECT_IS_TOP_LEVEL})
option(GDN_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(GDN_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(GDN_BUILD_BENCH "Build the development benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(GDN_BUILD_FUZZ "Build the fuzz targets in place of the tests (needs clang)" OFF)
option(GDN_INSTALL "Define the install targets" ${PROJECT_IS_TOP_LEVEL})
option(GDN_WERROR "Turn the compiler's warnings into errors" ${PROJECT_IS_TOP_LEVEL})
set(GDN_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize takes them: address,undefined or thread")

if(NOT GDN_BUILD_SHARED AND NOT GDN_BUILD_STATIC)
    message(FATAL_ERROR "GDN_BUILD_SHARED and GDN_BUILD_STATIC are both OFF; one must be ON")
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

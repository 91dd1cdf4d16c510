# Finds OpenBLAS (any of its pthread, OpenMP and serial builds) with 32-bit integers.
#
#   OpenBLAS_FOUND, OpenBLAS_VERSION, OpenBLAS_LIBRARY, OpenBLAS_INCLUDE_DIR, target OpenBLAS::OpenBLAS
#   OpenBLAS_REFUSAL   why a library that was found is not used; empty otherwise
#
# An ILP64 build (64-bit integers) is refused: its header says OPENBLAS_USE64BITINT, and calling it with 32-bit
# integers would read past the arguments. Set OpenBLAS_ROOT to look in a prefix first.

set(OpenBLAS_REFUSAL "")
set(openblas_folders openblas openblas-pthread openblas-openmp openblas-serial)
# The plain name first: distributions point it to the variant that the administrator chose.
find_path(OpenBLAS_INCLUDE_DIR openblas_config.h)
find_path(OpenBLAS_INCLUDE_DIR openblas_config.h PATH_SUFFIXES ${openblas_folders})
find_library(OpenBLAS_LIBRARY openblas)
find_library(OpenBLAS_LIBRARY openblas PATH_SUFFIXES ${openblas_folders})
mark_as_advanced(OpenBLAS_INCLUDE_DIR OpenBLAS_LIBRARY)

if(OpenBLAS_INCLUDE_DIR)
    file(STRINGS ${OpenBLAS_INCLUDE_DIR}/openblas_config.h openblas_lines
         REGEX "^#define OPENBLAS_(VERSION|USE64BITINT)")
    foreach(line IN LISTS openblas_lines)
        if(line MATCHES "OPENBLAS_VERSION.*OpenBLAS ([0-9.]+)")
            set(OpenBLAS_VERSION ${CMAKE_MATCH_1})
        elseif(line MATCHES "OPENBLAS_USE64BITINT")
            set(OpenBLAS_REFUSAL "; ${OpenBLAS_INCLUDE_DIR} is an ILP64 build (64-bit integers), which is not supported")
        endif()
    endforeach()
endif()

set(openblas_lp64 OFF)
if(OpenBLAS_INCLUDE_DIR AND NOT OpenBLAS_REFUSAL)
    set(openblas_lp64 ON)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS
    REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR openblas_lp64
    VERSION_VAR OpenBLAS_VERSION)

if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
    add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
    set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
        IMPORTED_LOCATION ${OpenBLAS_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${OpenBLAS_INCLUDE_DIR})
endif()

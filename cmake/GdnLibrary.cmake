# The libraries, from the objects of core and of the backends that are linked in:
#   gdn           shared, libgdn.so.0, exporting gdn_* alone       gdn::shared
#   gdn_static    static, libgdn.a, exporting nothing further      gdn::static
#   gdn_internal  the static one with the internal headers, for tests and benchmarks
#   gdn::gdn      the shared one where it is built

# Backends that may come as a module, libgdn_<name>.so, whether or not this build makes it; best first.
set(GDN_MODULE_NAMES cuda)

gdn_backend_objects(static static_objects)
if(GDN_BUILD_SHARED)
    gdn_backend_objects(shared shared_objects)
endif()

# What the library needs at link time. The installed static library names plain libraries (the OpenMP runtime of
# the compiler that built it), so that a C++ consumer needs no C compiler to find them.
set(build_libraries Threads::Threads ${CMAKE_DL_LIBS} m)
set(GDN_STATIC_LIBRARIES pthread ${CMAKE_DL_LIBS} m)
if(GDN_WITH_OPENMP)
    list(PREPEND build_libraries OpenMP::OpenMP_C)
    list(PREPEND GDN_STATIC_LIBRARIES ${OpenMP_C_LIB_NAMES})
endif()
if(GDN_WITH_OPENBLAS)
    list(PREPEND build_libraries OpenBLAS::OpenBLAS)
    set(static_openblas $<INSTALL_INTERFACE:OpenBLAS::OpenBLAS>) # which gdnConfig.cmake finds
endif()
list(REMOVE_DUPLICATES GDN_STATIC_LIBRARIES)
# What backends that are in the static library alone need beside that: full paths.
get_property(static_backend_libraries GLOBAL PROPERTY GDN_STATIC_BACKEND_LIBRARIES)
list(PREPEND GDN_STATIC_LIBRARIES ${static_backend_libraries})

if(GDN_BUILD_SHARED)
    add_library(gdn SHARED $<TARGET_OBJECTS:gdn_core> ${shared_objects})
    add_library(gdn::shared ALIAS gdn)
    target_link_libraries(gdn PRIVATE gdn_flags ${build_libraries})
    target_include_directories(gdn INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_options(gdn PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/gdn.map)
    if(NOT GDN_SANITIZE)
        target_link_options(gdn PRIVATE -Wl,--no-undefined)
    endif()
    set_target_properties(gdn PROPERTIES
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}
        EXPORT_NAME shared
        LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/gdn.map)
endif()

add_library(gdn_static STATIC $<TARGET_OBJECTS:gdn_core_static> ${static_objects})
add_library(gdn::static ALIAS gdn_static)
target_link_libraries(gdn_static PRIVATE $<BUILD_INTERFACE:gdn_flags>)
foreach(library IN LISTS static_backend_libraries build_libraries)
    target_link_libraries(gdn_static PRIVATE $<BUILD_INTERFACE:${library}>)
endforeach()
target_link_libraries(gdn_static INTERFACE ${static_openblas})
foreach(library IN LISTS GDN_STATIC_LIBRARIES)
    target_link_libraries(gdn_static INTERFACE $<INSTALL_INTERFACE:${library}>)
endforeach()
target_compile_definitions(gdn_static INTERFACE GDN_STATIC)
target_include_directories(gdn_static INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(gdn_static PROPERTIES OUTPUT_NAME gdn EXPORT_NAME static LINKER_LANGUAGE C)
if(NOT GDN_BUILD_STATIC)
    set_target_properties(gdn_static PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

add_library(gdn_internal INTERFACE)
target_link_libraries(gdn_internal INTERFACE gdn_static gdn_flags)
target_include_directories(gdn_internal INTERFACE
    ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

if(GDN_BUILD_SHARED)
    add_library(gdn::gdn ALIAS gdn)
else()
    add_library(gdn::gdn ALIAS gdn_static)
endif()

# Installing and packaging. An installed tree holds no absolute path: it may be moved as a whole.
#   include/gdn/*.h   lib/libgdn.so*   lib/libgdn.a   lib/cmake/gdn/   lib/pkgconfig/gdn.pc, gdn-static.pc
# Components: runtime (the shared library), dev, tools, cuda (the module). `find_package(gdn COMPONENTS shared static)`.

include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gdn)

install(DIRECTORY include/gdn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.h")

# One export file a library, so that a package without the static library does not name it.
if(GDN_BUILD_SHARED)
    install(TARGETS gdn EXPORT gdn-shared
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
    install(EXPORT gdn-shared NAMESPACE gdn:: FILE gdn-shared.cmake DESTINATION ${config_dir} COMPONENT dev)
endif()
if(GDN_BUILD_STATIC)
    install(TARGETS gdn_static EXPORT gdn-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
    install(EXPORT gdn-static NAMESPACE gdn:: FILE gdn-static.cmake DESTINATION ${config_dir} COMPONENT dev)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gdnConfig.cmake.in
    ${PROJECT_BINARY_DIR}/cmake/gdnConfig.cmake INSTALL_DESTINATION ${config_dir} NO_SET_AND_CHECK_MACRO)
# While the major version is 0, a minor version may break what is built on it.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/gdnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/gdnConfig.cmake ${PROJECT_BINARY_DIR}/cmake/gdnConfigVersion.cmake
        DESTINATION ${config_dir} COMPONENT dev)
if(GDN_WITH_OPENBLAS)
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindOpenBLAS.cmake DESTINATION ${config_dir} COMPONENT dev)
endif()

# pkg-config: paths from the place of the .pc file itself.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE GDN_PC_PREFIX)
set(GDN_PC_LIBRARIES ${GDN_STATIC_LIBRARIES})
if(GDN_WITH_OPENBLAS)
    list(PREPEND GDN_PC_LIBRARIES openblas)
endif()
list(TRANSFORM GDN_PC_LIBRARIES PREPEND -l REGEX "^[^/]") # a full path stays one
list(JOIN GDN_PC_LIBRARIES " " GDN_PC_LIBRARIES)
set(pc_files "")
if(GDN_BUILD_SHARED)
    list(APPEND pc_files gdn.pc)
endif()
if(GDN_BUILD_STATIC)
    list(APPEND pc_files gdn-static.pc)
endif()
foreach(file IN LISTS pc_files)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${file}.in ${PROJECT_BINARY_DIR}/cmake/${file} @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/cmake/${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

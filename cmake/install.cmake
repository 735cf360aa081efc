# What `cmake --install` puts in place: headers, both libraries, the CMake package, the pkg-config file, the program.
# Component `library` is everything but the program.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/canopy)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/canopy DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
# Two export sets: a project without C++ can use the shared library, only the static one needs OpenMP's C++ target.
foreach(kind static shared)
  install(TARGETS canopy_${kind} EXPORT canopy_${kind}_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT canopy_${kind}_targets NAMESPACE canopy:: FILE canopy-${kind}-targets.cmake DESTINATION ${package_dir}
    COMPONENT library)
endforeach()
set(static_needs_openmp ${OpenMP_CXX_FOUND})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/canopy-config.cmake.in ${PROJECT_BINARY_DIR}/canopy-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/canopy-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/canopy-config.cmake ${PROJECT_BINARY_DIR}/canopy-config-version.cmake
  DESTINATION ${package_dir} COMPONENT library)

# Libs.private: what the static library needs beyond itself, for `pkg-config --static`.
set(static_libraries "")
foreach(name IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  if(name MATCHES "^(stdc\\+\\+|c\\+\\+)$")
    string(APPEND static_libraries " -l${name}")
  endif()
endforeach()
foreach(name IN LISTS OpenMP_CXX_LIB_NAMES)
  string(APPEND static_libraries " -l${name}")
endforeach()
if(CANOPY_WITH_CUDA)
  string(APPEND static_libraries " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -lpthread")
endif()
string(APPEND static_libraries " -lm")
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/canopy.pc.in ${PROJECT_BINARY_DIR}/canopy.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/canopy.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)

if(CANOPY_PROGRAM)
  install(TARGETS canopy_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()

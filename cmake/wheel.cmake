# What the Python wheel holds besides python/canopy_gdn: the libraries, in its _lib folder. Nothing else is installed.
install(PROGRAMS $<TARGET_FILE:canopy_shared> DESTINATION canopy_gdn/_lib RENAME libcanopy.so.${PROJECT_VERSION_MAJOR})
if(TARGET canopy_torch)
  install(PROGRAMS $<TARGET_FILE:canopy_torch> DESTINATION canopy_gdn/_lib)
endif()

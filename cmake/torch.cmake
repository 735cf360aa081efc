# The PyTorch operators (bindings/torch) on the LibTorch stable ABI: one binary for every PyTorch from 2.10 on, with and
# without CUDA. Needs PyTorch's headers and libtorch_cpu.so at build time; nothing of its CUDA libraries.
set(CANOPY_TORCH OFF CACHE STRING "PyTorch operators: AUTO (where PyTorch is found), ON or OFF")
set_property(CACHE CANOPY_TORCH PROPERTY STRINGS AUTO ON OFF)
set(CANOPY_TORCH_DIR "" CACHE PATH "folder of an installed torch package (the one with include/ and lib/)")

if(NOT CANOPY_TORCH MATCHES "^(AUTO|ON)$")
  return()
endif()
if(NOT CANOPY_TORCH_DIR)
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    # By its folder, not by importing it: a wheel is built in an environment of its own, whose interpreter still has the
    # user's packages beside it.
    execute_process(COMMAND ${Python3_EXECUTABLE} -c
      "import os, sysconfig; print(next((p for p in (os.path.join(sysconfig.get_path(k), 'torch') for k in ('platlib', 'purelib')) if os.path.isdir(p)), ''))"
      OUTPUT_VARIABLE CANOPY_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endif()
set(why "")
if(NOT EXISTS "${CANOPY_TORCH_DIR}/include/torch/csrc/stable/library.h")
  set(why "no PyTorch found (looked at '${CANOPY_TORCH_DIR}'; install it first, or set CANOPY_TORCH_DIR)")
elseif(NOT EXISTS "${CANOPY_TORCH_DIR}/include/torch/headeronly/version.h")
  set(why "the PyTorch in ${CANOPY_TORCH_DIR} is older than 2.10")
endif()
if(why)
  if(CANOPY_TORCH STREQUAL ON)
    message(FATAL_ERROR "CANOPY_TORCH=ON: ${why}")
  endif()
  message(STATUS "${why}: built without PyTorch operators")
  return()
endif()

file(GLOB torch_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bindings/torch/*.cpp)
add_library(canopy_torch MODULE ${torch_sources})
# 2.10: what newer headers would use beyond it stays out.
target_compile_definitions(canopy_torch PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
target_compile_options(canopy_torch PRIVATE ${warnings} -fvisibility=hidden)
target_include_directories(canopy_torch PRIVATE ${PROJECT_SOURCE_DIR}/src)  # message.hpp
target_include_directories(canopy_torch SYSTEM PRIVATE ${CANOPY_TORCH_DIR}/include)
target_link_libraries(canopy_torch PRIVATE canopy_shared ${CANOPY_TORCH_DIR}/lib/libtorch_cpu.so ${CMAKE_DL_LIBS})
# Found beside libcanopy; libtorch_cpu is in the process before this library is.
set_target_properties(canopy_torch PROPERTIES PREFIX lib SUFFIX .so SKIP_BUILD_RPATH OFF BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN")

# The engine for GPUs: whether it is built, and with what. Included after FindTorchWheel.
#
#   DRAFTMILL_WITH_CUDA   AUTO (built where everything is found), ON (missing parts are errors), OFF
#   DRAFTMILL_CUDA        the outcome
#   CudaWheel::runtime    libcudart of the torch wheel with the toolkit's headers
#   CudaWheel::torch      torch_cuda and c10_cuda
#   CudaWheel::cudnn      cuDNN with its frontend's headers
#
# Programs must use the CUDA runtime that torch uses, so the toolkit gives only nvcc and headers (docs/decisions.md).
include_guard(GLOBAL)

set(DRAFTMILL_WITH_CUDA AUTO CACHE STRING "Build the engine for GPUs: AUTO, ON or OFF")
set(DRAFTMILL_CUDA OFF)
if(DRAFTMILL_WITH_CUDA STREQUAL "OFF")
  return()
endif()

find_program(DRAFTMILL_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(_draftmill_packages "${DRAFTMILL_TORCH_DIR}/..")
find_library(CudaWheel_TORCH_LIBRARY torch_cuda PATHS "${DRAFTMILL_TORCH_DIR}/lib" NO_DEFAULT_PATH)
find_library(CudaWheel_C10_LIBRARY c10_cuda PATHS "${DRAFTMILL_TORCH_DIR}/lib" NO_DEFAULT_PATH)
find_library(CudaWheel_RUNTIME_LIBRARY libcudart.so.13 PATHS "${_draftmill_packages}/nvidia/cu13/lib" NO_DEFAULT_PATH)
find_library(CudaWheel_NVRTC_LIBRARY libnvrtc.so.13 PATHS "${_draftmill_packages}/nvidia/cu13/lib" NO_DEFAULT_PATH)
find_library(CudaWheel_CUDNN_LIBRARY libcudnn.so.9 PATHS "${_draftmill_packages}/nvidia/cudnn/lib" NO_DEFAULT_PATH)
find_path(CudaWheel_CUDNN_INCLUDE_DIR cudnn.h PATHS "${_draftmill_packages}/nvidia/cudnn/include" NO_DEFAULT_PATH)
find_path(CudaWheel_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATHS "${_draftmill_packages}/include"
  "${DRAFTMILL_TORCH_DIR}/../../../../include" NO_DEFAULT_PATH)

set(_draftmill_missing "")
foreach(_part DRAFTMILL_NVCC CudaWheel_TORCH_LIBRARY CudaWheel_C10_LIBRARY CudaWheel_RUNTIME_LIBRARY CudaWheel_NVRTC_LIBRARY
    CudaWheel_CUDNN_LIBRARY CudaWheel_CUDNN_INCLUDE_DIR CudaWheel_FRONTEND_INCLUDE_DIR)
  if(NOT ${_part})
    list(APPEND _draftmill_missing ${_part})
    unset(${_part} CACHE)  # looked for again the next time
  endif()
endforeach()
if(_draftmill_missing)
  if(DRAFTMILL_WITH_CUDA STREQUAL "AUTO")
    message(STATUS "The engine for GPUs is not built; not found: ${_draftmill_missing}")
    return()
  endif()
  message(FATAL_ERROR "DRAFTMILL_WITH_CUDA is ON and these were not found: ${_draftmill_missing}. Run tools/setup.sh gpu")
endif()

set(DRAFTMILL_CUDA ON)
list(APPEND CMAKE_BUILD_RPATH "${CMAKE_BINARY_DIR}")  # where programs of the build tree look for the plug-in
set(CMAKE_CUDA_COMPILER "${DRAFTMILL_NVCC}")
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
# Machine code for A100 and Hopper; newer ones compile the intermediate code when a program starts.
set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)
if(DRAFTMILL_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${DRAFTMILL_CCACHE}")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # only now: the check of the compiler links the toolkit's
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know this nvcc's
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
# Nor that nvcc's host compiler looks there by itself: named with -isystem, they would hide its own headers.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})

get_filename_component(_draftmill_toolkit "${DRAFTMILL_NVCC}" REALPATH)
get_filename_component(_draftmill_toolkit "${_draftmill_toolkit}/../../include" ABSOLUTE)

add_library(CudaWheel::runtime SHARED IMPORTED)
set_target_properties(CudaWheel::runtime PROPERTIES
  IMPORTED_LOCATION "${CudaWheel_RUNTIME_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${_draftmill_toolkit}")

add_library(CudaWheel::cudnn SHARED IMPORTED)
set_target_properties(CudaWheel::cudnn PROPERTIES
  IMPORTED_LOCATION "${CudaWheel_CUDNN_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${CudaWheel_CUDNN_INCLUDE_DIR};${CudaWheel_FRONTEND_INCLUDE_DIR}"
  INTERFACE_LINK_LIBRARIES "${CudaWheel_NVRTC_LIBRARY}")  # the frontend's headers name it

# torch_cuda registers its kernels when it is loaded: it must be named even where no symbol of it is used.
add_library(CudaWheel::torch INTERFACE IMPORTED)
set_property(TARGET CudaWheel::torch PROPERTY INTERFACE_LINK_LIBRARIES
  "-Wl,--no-as-needed" "${CudaWheel_TORCH_LIBRARY}" "${CudaWheel_C10_LIBRARY}" "-Wl,--as-needed" TorchWheel::cpu CudaWheel::runtime)

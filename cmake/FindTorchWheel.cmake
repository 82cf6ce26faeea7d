# Finds libtorch inside the PyPI wheel torch==2.11.0 by path and defines
#
#   TorchWheel::cpu    torch_cpu and c10: all the CPU engine needs
#
# The wheel's own CMake package is not used: it asks for a CUDA toolkit even for a CPU program (docs/decisions.md).
# DRAFTMILL_TORCH_DIR names the folder `torch` of an installed wheel; otherwise .venv in the source tree is searched.
include(FindPackageHandleStandardArgs)

# A remembered place that is gone (a .venv made anew, with another Python) is searched for again.
if(DRAFTMILL_TORCH_DIR AND NOT EXISTS "${DRAFTMILL_TORCH_DIR}/lib/libtorch_cpu.so")
  unset(DRAFTMILL_TORCH_DIR CACHE)
endif()
foreach(_variable TorchWheel_INCLUDE_DIR TorchWheel_CPU_LIBRARY TorchWheel_C10_LIBRARY)
  if(${_variable} AND NOT EXISTS "${${_variable}}")
    unset(${_variable} CACHE)
  endif()
endforeach()

if(NOT DRAFTMILL_TORCH_DIR)
  file(GLOB _draftmill_torch_folders "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  if(_draftmill_torch_folders)
    list(GET _draftmill_torch_folders 0 DRAFTMILL_TORCH_DIR)
  endif()
endif()
set(DRAFTMILL_TORCH_DIR "${DRAFTMILL_TORCH_DIR}" CACHE PATH "The folder `torch` of the installed wheel" FORCE)

find_path(TorchWheel_INCLUDE_DIR ATen/ATen.h PATHS "${DRAFTMILL_TORCH_DIR}/include" NO_DEFAULT_PATH)
find_library(TorchWheel_CPU_LIBRARY torch_cpu PATHS "${DRAFTMILL_TORCH_DIR}/lib" NO_DEFAULT_PATH)
find_library(TorchWheel_C10_LIBRARY c10 PATHS "${DRAFTMILL_TORCH_DIR}/lib" NO_DEFAULT_PATH)
if(EXISTS "${DRAFTMILL_TORCH_DIR}/version.py")
  file(STRINGS "${DRAFTMILL_TORCH_DIR}/version.py" _draftmill_torch_version REGEX "^__version__ = ")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" TorchWheel_VERSION "${_draftmill_torch_version}")
endif()

find_package_handle_standard_args(TorchWheel
  REQUIRED_VARS TorchWheel_CPU_LIBRARY TorchWheel_C10_LIBRARY TorchWheel_INCLUDE_DIR
  VERSION_VAR TorchWheel_VERSION
  REASON_FAILURE_MESSAGE "Run tools/setup.sh, or name the wheel's folder with -DDRAFTMILL_TORCH_DIR=.../torch, or build without it: cmake --preset text")

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::cpu)
  # libtorch_cpu.so names libcudart and libcupti, which lie in the wheels beside it. Its own RPATH finds them when the
  # program runs; the linker has to be told. The folder of libtorch_cpu.so goes into the program's RPATH by CMake, so a
  # program in the build tree needs no LD_LIBRARY_PATH.
  file(GLOB _draftmill_nvidia_folders "${DRAFTMILL_TORCH_DIR}/../nvidia/*/lib")
  add_library(TorchWheel::c10 SHARED IMPORTED)
  set_target_properties(TorchWheel::c10 PROPERTIES
    IMPORTED_LOCATION "${TorchWheel_C10_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TorchWheel_INCLUDE_DIR}")
  add_library(TorchWheel::cpu SHARED IMPORTED)
  set_target_properties(TorchWheel::cpu PROPERTIES
    IMPORTED_LOCATION "${TorchWheel_CPU_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TorchWheel_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES TorchWheel::c10)
  set_property(TARGET TorchWheel::cpu PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${DRAFTMILL_TORCH_DIR}/lib")
  foreach(_folder IN LISTS _draftmill_nvidia_folders)
    set_property(TARGET TorchWheel::cpu APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${_folder}")
  endforeach()
endif()

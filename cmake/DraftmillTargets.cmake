# How every target of draftmill is declared: one library a folder (or module), one test program a library.
#
#   draftmill_library(base SOURCES status.cc hash.cc DEPS PkgConfig::XXHASH)
#   draftmill_test(base_test SOURCES status_test.cc DEPS base)            # label "fast"; in `make test`
#   draftmill_test(base_slow_test SOURCES ... DEPS base LABELS slow)      # only in `make test-all`
#   draftmill_benchmark(base_bench SOURCES hash_bench.cc DEPS base)
#   draftmill_fuzzer(json_fuzz SOURCES json_fuzz.cc DEPS base)
# Library names get the prefix draftmill_; DEPS may name ours without it.
include_guard(GLOBAL)
include(GoogleTest)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(DRAFTMILL_CCACHE ccache)
if(DRAFTMILL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DRAFTMILL_CCACHE}")
endif()

add_library(draftmill_flags INTERFACE)
target_include_directories(draftmill_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(draftmill_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Wold-style-cast;-Woverloaded-virtual;-Werror>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;-Werror=all-warnings>")
# g++ 12 gives false reports of these for std::variant and std::string at -O2 (GCC bugs 105593, 105651, 107138).
target_compile_options(draftmill_flags INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized;-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>")
# fmt is linked: compiled anew in each file that formats something it would take 4 s of the 10 that such a file takes.
target_compile_definitions(draftmill_flags INTERFACE SPDLOG_FMT_EXTERNAL=1)
target_link_libraries(draftmill_flags INTERFACE fmt::fmt)
if(DRAFTMILL_BUILD_FUZZERS)
  # Coverage of the code under test, not of the fuzz targets alone, is what guides libFuzzer.
  target_compile_options(draftmill_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DRAFTMILL_SANITIZE)
  target_compile_options(draftmill_flags INTERFACE -fsanitize=${DRAFTMILL_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(draftmill_flags INTERFACE -fsanitize=${DRAFTMILL_SANITIZE})
endif()

function(_draftmill_link target)
  foreach(dependency IN LISTS ARGN)
    if(TARGET draftmill_${dependency})
      target_link_libraries(${target} PUBLIC draftmill_${dependency})
    elseif(dependency MATCHES "::" OR TARGET ${dependency})
      target_link_libraries(${target} PUBLIC ${dependency})
    else()
      target_link_libraries(${target} PUBLIC draftmill_${dependency})
    endif()
  endforeach()
endfunction()

function(draftmill_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(draftmill_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(draftmill_${name} PUBLIC draftmill_flags)
  _draftmill_link(draftmill_${name} ${ARG_DEPS})
endfunction()

# libdraftmill_NAME.so in the build folder and, for the bundle, in lib/ (stages/extract/plugin.h).
function(draftmill_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(draftmill_${name} MODULE ${ARG_SOURCES})
  target_link_libraries(draftmill_${name} PRIVATE draftmill_flags ${ARG_LIBRARIES})
  target_compile_definitions(draftmill_${name} PRIVATE DRAFTMILL_VERSION="${PROJECT_VERSION}")
  # Its copies of the program's libraries are its own affair; a symbol that nobody has shows here, not on another machine.
  target_link_options(draftmill_${name} PRIVATE "LINKER:--exclude-libs,ALL" "LINKER:-z,defs")
  set_target_properties(draftmill_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}" INSTALL_RPATH "")
  install(TARGETS draftmill_${name} LIBRARY DESTINATION lib COMPONENT bundle)
endfunction()

function(draftmill_test name)
  if(NOT DRAFTMILL_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # For a quick build: what tests test is to be fast, and to be looked at for undefined behaviour, not they themselves. Options
  # of files come last.
  set(quick "$<$<CONFIG:Release>:-O1>")
  if(DRAFTMILL_SANITIZE)
    list(APPEND quick -fno-sanitize=undefined)
  endif()
  set_source_files_properties(${ARG_SOURCES} PROPERTIES COMPILE_OPTIONS "${quick}")
  target_link_libraries(${name} PRIVATE draftmill_flags GTest::gtest GTest::gmock GTest::gtest_main)
  _draftmill_link(${name} ${ARG_DEPS})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

function(draftmill_benchmark name)
  if(NOT DRAFTMILL_BUILD_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE draftmill_flags benchmark::benchmark)
  _draftmill_link(${name} ${ARG_DEPS})
  set_property(GLOBAL APPEND PROPERTY DRAFTMILL_BENCHMARKS ${name})
endfunction()

function(draftmill_fuzzer name)
  if(NOT DRAFTMILL_BUILD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  # Seeds of json_fuzz lie in fuzz_seeds/json.
  string(REGEX REPLACE "_fuzz$" "" seeds "${name}")
  set_property(GLOBAL APPEND_STRING PROPERTY DRAFTMILL_FUZZERS
    "${name} $<TARGET_FILE:${name}> ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_seeds/${seeds}\n")
  _draftmill_link(${name} ${ARG_DEPS})
endfunction()

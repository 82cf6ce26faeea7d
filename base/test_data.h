// Where tests find files that are not part of the tree: real tokenizers, templates, conversations, malformed inputs.
//
//   const std::optional<std::string> folder = TestDataPath("malformed/json");
//   if (!folder) GTEST_SKIP() << ...;            // or, in one line:
//   DRAFTMILL_TEST_DATA_OR_SKIP(folder, "malformed/json");
//
// The environment variable DRAFTMILL_TEST_DATA names the folder; without it, it is ../shared/data from the current
// folder (tests run in the root of the source tree). For tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace draftmill {

/// The folder of all test data, whether it exists or not.
inline std::string TestDataFolder() {
  const char* const folder = std::getenv("DRAFTMILL_TEST_DATA");
  return folder != nullptr && *folder != '\0' ? folder : "../shared/data";
}

/// The path of a file or folder of the test data, or nothing where it is absent.
inline std::optional<std::string> TestDataPath(std::string_view relative) {
  std::string path = TestDataFolder() + "/" + std::string(relative);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return path;
}

}  // namespace draftmill

/// Declares `name` (a std::string) as the path of test data, or skips the test with a message where it is absent.
#define DRAFTMILL_TEST_DATA_OR_SKIP(name, relative)                                        \
  const std::string name = ::draftmill::TestDataPath(relative).value_or("");               \
  if (name.empty())                                                                        \
  GTEST_SKIP() << "no test data at " << ::draftmill::TestDataFolder() << "/" << (relative) \
               << "; set DRAFTMILL_TEST_DATA to the folder that holds it"

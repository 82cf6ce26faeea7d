// A readable file that stands in memory, for tests of readers.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "state/file_system.h"

namespace draftmill {

class MemoryFile : public ReadableFile {
 public:
  explicit MemoryFile(std::string content) : content_(std::move(content)) {}

  Result<std::size_t> ReadAt(std::int64_t offset, std::span<std::byte> buffer) override {
    const auto begin = std::min(static_cast<std::size_t>(offset), content_.size());
    const std::size_t count = std::min(buffer.size(), content_.size() - begin);
    if (count > 0) std::memcpy(buffer.data(), content_.data() + begin, count);
    return count;
  }
  Result<std::int64_t> Size() override { return static_cast<std::int64_t>(content_.size()); }

 private:
  std::string content_;
};

}  // namespace draftmill

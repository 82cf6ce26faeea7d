// A text that normalizers have changed, and for every byte of it the bytes of the original that it came from.
//
// Most text is changed by nothing: then an AlignedText is a view of the original with an offset, and costs nothing.
// Values of one thread; views must not outlive what they look at. Original offsets are below 4 GiB.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace draftmill {

/// A view of a text with its origin.
struct AlignedText {
  std::string_view text;
  std::uint32_t origin = 0;               ///< where text[0] stands in the original, where `begins` is null
  const std::uint32_t* begins = nullptr;  ///< for each byte: where its source begins
  const std::uint32_t* ends = nullptr;    ///< and ends

  std::uint32_t OriginalBegin(std::size_t i) const {
    return begins != nullptr ? begins[i] : origin + static_cast<std::uint32_t>(i);
  }
  /// Where the source of byte i ends.
  std::uint32_t OriginalEnd(std::size_t i) const {
    return ends != nullptr ? ends[i] : origin + static_cast<std::uint32_t>(i) + 1;
  }
  AlignedText Slice(std::size_t begin, std::size_t end) const {
    AlignedText slice = *this;
    slice.text = text.substr(begin, end - begin);
    slice.origin += static_cast<std::uint32_t>(begin);
    if (begins != nullptr) {
      slice.begins += begin;
      slice.ends += begin;
    }
    return slice;
  }
};

/// Owns a changed text while it is built.
class AlignedBuffer {
 public:
  void Clear() {
    text_.clear();
    begins_.clear();
    ends_.clear();
  }
  void Reserve(std::size_t bytes) {
    text_.reserve(bytes);
    begins_.reserve(bytes);
    ends_.reserve(bytes);
  }
  std::size_t size() const { return text_.size(); }
  AlignedText View() const { return {text_, 0, begins_.data(), ends_.data()}; }

  /// Appends source.text[begin, end) unchanged.
  void AppendSlice(const AlignedText& source, std::size_t begin, std::size_t end) {
    const std::size_t old_size = text_.size();
    const std::size_t count = end - begin;
    text_.append(source.text, begin, count);
    begins_.resize(old_size + count);
    ends_.resize(old_size + count);
    std::uint32_t* const begins = begins_.data() + old_size;
    std::uint32_t* const ends = ends_.data() + old_size;
    if (source.begins != nullptr) {
      std::copy_n(source.begins + begin, count, begins);
      std::copy_n(source.ends + begin, count, ends);
      return;
    }
    const std::uint32_t first = source.OriginalBegin(begin);
    for (std::uint32_t i = 0; i < count; ++i) {
      begins[i] = first + i;
      ends[i] = first + i + 1;
    }
  }
  /// Appends bytes that stand for [original_begin, original_end) of the original.
  void AppendMade(std::string_view made, std::uint32_t original_begin, std::uint32_t original_end) {
    text_.append(made);
    begins_.resize(text_.size(), original_begin);
    ends_.resize(text_.size(), original_end);
  }

 private:
  std::string text_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace draftmill

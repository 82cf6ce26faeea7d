// A text that normalizers have changed, and for every byte of it the bytes of the original that it came from.
//
// Most text is changed by nothing: then an AlignedText is a view of the original with an offset, and costs nothing.
// Values of one thread; views must not outlive what they look at. Original offsets are below 4 GiB.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
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
  /// `tokenizers` counts what a Replace puts in place of several characters from the last of them. From this byte on,
  /// text that stands for the original's first bytes does not begin there for it.
  std::size_t late_from = std::string_view::npos;

  std::uint32_t OriginalBegin(std::size_t i) const {
    return begins != nullptr ? begins[i] : origin + static_cast<std::uint32_t>(i);
  }
  /// Where the source of byte i ends.
  std::uint32_t OriginalEnd(std::size_t i) const {
    return ends != nullptr ? ends[i] : origin + static_cast<std::uint32_t>(i) + 1;
  }
  /// Whether `tokenizers` takes byte i for the start of the original.
  bool IsOriginalStart(std::size_t i) const { return i < late_from && OriginalBegin(i) == 0; }
  AlignedText Slice(std::size_t begin, std::size_t end) const {
    AlignedText slice = *this;
    if (late_from != std::string_view::npos) slice.late_from = late_from - std::min(late_from, begin);
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
    size_ = 0;
    late_from_ = std::string_view::npos;
  }
  void Reserve(std::size_t bytes) {
    if (bytes > text_.size()) Resize(bytes);
  }
  std::size_t size() const { return size_; }
  AlignedText View() const {
    return {std::string_view(text_).substr(0, size_), 0, begins_.data(), ends_.data(), late_from_};
  }

  /// Appends source.text[begin, end) unchanged.
  void AppendSlice(const AlignedText& source, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    if (source.late_from < end) NoteLate(size_ + source.late_from - std::min(source.late_from, begin));
    const std::size_t count = end - begin;
    const std::size_t at = Extend(count);
    std::memcpy(text_.data() + at, source.text.data() + begin, count);
    std::uint32_t* const begins = begins_.data() + at;
    std::uint32_t* const ends = ends_.data() + at;
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
  /// Appends bytes that stand for source.text[begin, end), which is not empty.
  void AppendMade(std::string_view made, const AlignedText& source, std::size_t begin, std::size_t end) {
    if (source.late_from <= begin) NoteLate(size_);
    const std::size_t at = Extend(made.size());
    std::copy_n(made.data(), made.size(), text_.data() + at);
    std::fill_n(begins_.data() + at, made.size(), source.OriginalBegin(begin));
    std::fill_n(ends_.data() + at, made.size(), source.OriginalEnd(end - 1));
  }
  /// The same for a match of Replace, whose last character is the one that `tokenizers` counts from.
  void AppendReplacement(std::string_view made, const AlignedText& source, std::size_t begin, std::size_t end) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(source.text[last]) & 0xC0U) == 0x80) --last;
    if (source.OriginalBegin(begin) == 0 && !source.IsOriginalStart(last)) NoteLate(size_);
    AppendMade(made, source, begin, end);
  }

 private:
  void NoteLate(std::size_t at) { late_from_ = std::min(late_from_, at); }
  /// Makes room for so many more bytes and counts them; returns where they stand.
  std::size_t Extend(std::size_t bytes) {
    const std::size_t at = size_;
    size_ += bytes;
    if (size_ > text_.size()) Resize(std::max(size_, text_.size() * 2));
    return at;
  }
  void Resize(std::size_t bytes) {
    text_.resize(bytes);
    begins_.resize(bytes);
    ends_.resize(bytes);
  }

  // All three are longer than what is used.
  std::string text_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> ends_;
  std::size_t size_ = 0;
  std::size_t late_from_ = std::string_view::npos;
};

}  // namespace draftmill

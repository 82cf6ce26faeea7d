#include "base/text_search.h"

#include <string.h>

#include <algorithm>
#include <string>

namespace draftmill {
namespace {

/// Up to here comparing from the start costs less than a reversed copy.
constexpr std::size_t kShortBytes = 16;
constexpr std::size_t kWindowBytes = 256;

}  // namespace

std::size_t FindSubstring(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  // glibc's is linear: it knows how far a failed comparison carries (the two-way algorithm).
  const void* const found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

// In windows from the end, so that a match near the end costs little however long the text is.
std::size_t FindLastSubstring(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= kShortBytes || wanted.size() > text.size()) return text.rfind(wanted);
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  const std::size_t window_bytes = std::max(kWindowBytes, 4 * wanted.size());
  std::string reversed;
  for (std::size_t end = text.size();;) {
    const std::size_t begin = end > window_bytes ? end - window_bytes : 0;
    const std::string_view window = text.substr(begin, end - begin);
    reversed.assign(window.rbegin(), window.rend());
    const std::size_t found = FindSubstring(reversed, reversed_wanted);
    if (found != std::string_view::npos) return end - found - wanted.size();
    if (begin == 0) return found;
    end = begin + wanted.size() - 1;
  }
}

}  // namespace draftmill

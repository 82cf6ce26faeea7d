// A path or a name as one word of a shell's command line, for messages that say which command to give next.
#pragma once

#include <string>
#include <string_view>

namespace draftmill {

/// The text as it is where a shell takes it for one word, else in quotes: `a b` gives `'a b'`. Any bytes but NUL.
inline std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:@%+=";
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
  if (is_plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace draftmill

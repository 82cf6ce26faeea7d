// Regular expressions of tokenizer files: written for Oniguruma (Ruby syntax), matched by PCRE2 with JIT.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(Regex regex, Regex::Compile("\\p{N}{1,3}"));
//   DRAFTMILL_RETURN_IF_ERROR(regex.FindAll(text, [&](std::uint32_t begin, std::uint32_t end) { ... }));
//
// A pattern is translated (regex_translator.h) and refused where the two engines might differ. Backtracking is bounded:
// a pattern that needs too much of it ends in a refusal, not in a hang. const and safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace draftmill {

class Regex {
 public:
  /// Most bytes of a pattern.
  static constexpr std::size_t kMaxPatternBytes = 16'384;

  static Result<Regex> Compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Calls found(begin, end) for each match in `text` (valid UTF-8) from left to right, empty ones included, as
  /// Oniguruma's find_iter does.
  Status FindAll(std::string_view text, const std::function<void(std::uint32_t, std::uint32_t)>& found) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<const Code> code);

  std::unique_ptr<const Code> code_;
};

}  // namespace draftmill

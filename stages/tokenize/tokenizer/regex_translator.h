// Translates a pattern of Oniguruma (Ruby syntax, what `tokenizers` uses) into one of PCRE2 that matches the same.
//
// An allow-list: what is not known to mean the same in both is refused by name. Where they differ, PCRE2's spelling of
// Oniguruma's meaning is written:
//   \s \S \w \W \d \D \p{..} \b \B   classes of our own tables (Unicode 16), not of the system's PCRE2 (Unicode 14)
//   \p{Han}                          the script, not the script extensions
//   [a&&b]                           class intersection, which PCRE2 reads as something else without a word
//   {n,m}+ {n}?                      a repeated group and an optional one, not possessive and lazy
//   {,n}                             up to n times, not literal text
//   ^ $                              at the borders of lines, always
//   (?i:..)                          ASCII only, also in classes, and nothing that Oniguruma folds into one character
//                                    (ss, ff, fi, fl, st)
// Pure function, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace draftmill {

/// `pattern` is UTF-8. A refusal says at which byte.
Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace draftmill

// Character classes of patterns in PCRE2's spelling, with the members that our tables give them.
//
// The system's PCRE2 knows an older Unicode than the oracles. So a class is written as PCRE2's own property plus the
// code points that it lacks, or as plain ranges where it has too many. Safe from any thread; results are kept.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace draftmill {

/// What stands between [ and ] for `\p{name}`: a general category (L, Lu, ...), Han, or one of the names "space",
/// "word", "digit" for \s, \w, \d, and "word in brackets" for \w inside [...], where Oniguruma leaves out the six
/// Latin-1 numbers (² ³ ¹ ¼ ½ ¾) that \w alone takes. Nothing for a name that is not known.
std::optional<std::string> ClassText(std::string_view name);

}  // namespace draftmill

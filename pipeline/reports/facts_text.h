// A JSON report as text for people, so that what a command prints and what it prints with --json are the same facts.
//
// Members become "name: value" lines, inner objects indented sections, lists of objects tables. Names lose their
// underscores; members whose names end in `bytes`, `bytes_left`, `seconds` or `per_second` are written with units, other
// integers with thousands separators, except those that end in `id`, `line`, `offset`, `chunk`, `batch`, `block`, `shard` or
// `ms`. Pure function, safe from any thread.
#pragma once

#include <string>

#include "base/json.h"

namespace draftmill {

std::string FactsAsText(const json::Value& facts);

}  // namespace draftmill

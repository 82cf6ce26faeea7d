// "Did you mean": the name that a mistyped one most likely stands for. Pure function, safe from any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace draftmill {

/// The candidate with the fewest edits (insert, remove, replace, swap neighbours) from `name`, where these are at most
/// a third of its length and at least one is allowed; the first of equals. Case and '-' for '_' count as no edit.
std::optional<std::string> NearestName(std::string_view name, std::span<const std::string> candidates);

}  // namespace draftmill

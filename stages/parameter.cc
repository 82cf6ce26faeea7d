#include "stages/parameter.h"

namespace draftmill {

const json::Value& ParameterValues::Get(const std::string& name) const {
  const auto entry = entries_.find(name);
  DRAFTMILL_CHECK(entry != entries_.end(), "parameter `" + name + "` was never declared");
  return entry->second.value;
}

bool ParameterValues::IsWord(const std::string& name, std::string_view word) const {
  const json::Value& value = Get(name);
  return value.is_string() && value.as_string() == word;
}

}  // namespace draftmill

#include "stages/extract/config_fields.h"

#include <algorithm>
#include <utility>

namespace draftmill {

const json::Value* ConfigFields::Find(std::string_view name) const {
  const json::Value* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::int64_t ConfigFields::Integer(std::string_view name, std::int64_t minimum, std::int64_t maximum) {
  const json::Value* value = Find(name);
  if (value == nullptr) {
    Fail(InvalidInput(path_ + ": the field " + std::string(name) + " is missing; without it the model's shapes are unknown"));
    return minimum;
  }
  if (!value->is_integer()) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " must be a whole number, not " + std::string(value->KindName())));
    return minimum;
  }
  const std::int64_t number = value->as_integer();
  if (number < minimum || number > maximum) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " is " + std::to_string(number) + "; it must lie between " +
                      std::to_string(minimum) + " and " + std::to_string(maximum)));
    return minimum;
  }
  return number;
}

std::int64_t ConfigFields::IntegerOr(std::string_view name, std::int64_t minimum, std::int64_t maximum,
                                     std::int64_t fallback) {
  if (Find(name) != nullptr) return Integer(name, minimum, maximum);
  NoteDefault(name);
  return fallback;
}

double ConfigFields::NumberOr(std::string_view name, double minimum, double maximum, double fallback) {
  const json::Value* value = Find(name);
  if (value == nullptr) {
    NoteDefault(name);
    return fallback;
  }
  if (!value->is_number()) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " must be a number, not " + std::string(value->KindName())));
    return fallback;
  }
  const double number = value->as_double();
  if (!(number >= minimum && number <= maximum)) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " is " + json::PythonRepr(number) + "; it must lie between " +
                      json::PythonRepr(minimum) + " and " + json::PythonRepr(maximum)));
    return fallback;
  }
  return number;
}

bool ConfigFields::BoolOr(std::string_view name, bool fallback) {
  const json::Value* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " must be true or false, not " + std::string(value->KindName())));
    return fallback;
  }
  return value->as_bool();
}

std::string ConfigFields::TextOr(std::string_view name, std::string_view fallback) {
  const json::Value* value = Find(name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " must be text, not " + std::string(value->KindName())));
    return std::string(fallback);
  }
  return value->as_string();
}

void ConfigFields::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

std::vector<std::string> ConfigFields::defaults() const {
  std::vector<std::string> names = defaults_;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace draftmill

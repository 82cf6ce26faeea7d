#include "stages/extract/model/config_fields.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace draftmill {

const json::Value* ConfigFields::Find(std::string_view name) const {
  const json::Value* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigFields::IsNull(std::string_view name) const {
  const json::Value* value = object_.Find(name);
  return value != nullptr && value->is_null();
}

std::int64_t ConfigFields::Integer(std::string_view name, std::int64_t minimum, std::int64_t maximum) {
  const json::Value* value = Find(name);
  if (value == nullptr) {
    Fail(InvalidInput(path_ + ": the field " + std::string(name) +
                      " is missing; without it the model's shapes are unknown"));
    return minimum;
  }
  if (!value->is_integer()) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " must be a whole number, not " +
                      std::string(value->KindName())));
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

std::vector<std::int64_t> ConfigFields::Integers(std::string_view name, std::int64_t minimum, std::int64_t maximum) {
  const json::Value* list = Find(name);
  std::vector<std::int64_t> numbers;
  if (list == nullptr) return numbers;
  if (!list->is_array()) {
    FailInput(std::string(name) + " must be a list, not " + std::string(list->KindName()));
    return numbers;
  }
  for (const json::Value& value : list->as_array()) {
    if (!value.is_integer() || value.as_integer() < minimum || value.as_integer() > maximum) {
      FailInput(std::string(name) + " must hold whole numbers between " + std::to_string(minimum) + " and " +
                std::to_string(maximum));
      return {};
    }
    numbers.push_back(value.as_integer());
  }
  return numbers;
}

std::vector<double> ConfigFields::Numbers(std::string_view name, std::int64_t count, double minimum, double maximum) {
  const json::Value* list = Find(name);
  std::vector<double> numbers;
  const auto size = list != nullptr && list->is_array() ? static_cast<std::int64_t>(list->as_array().size()) : -1;
  if (size != count) {
    FailInput(std::string(name) + " must be a list of " + std::to_string(count) + " numbers" +
              (size < 0 ? "" : ", it has " + std::to_string(size)));
    return std::vector<double>(static_cast<std::size_t>(count), minimum);
  }
  for (const json::Value& value : list->as_array()) {
    const bool good = value.is_number() && value.as_double() >= minimum && value.as_double() <= maximum;
    if (!good)
      FailInput(std::string(name) + " must hold numbers between " + json::PythonRepr(minimum) + " and " +
                json::PythonRepr(maximum));
    numbers.push_back(good ? value.as_double() : minimum);
  }
  return numbers;
}

bool ConfigFields::BoolOr(std::string_view name, bool fallback) {
  const json::Value* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) {
    Fail(InvalidInput(path_ + ": " + std::string(name) + " must be true or false, not " +
                      std::string(value->KindName())));
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

// Reads fields of a model's config.json one by one, with bounds, defaults and messages that name file and field.
//
// Fails late: the first failure is kept and later reads return harmless values, so that a family's reader is a plain
// list of fields. Ask status() before the values are used. One reader belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace draftmill {

class ConfigFields {
 public:
  /// `object` must outlive the reader; `path` stands in messages.
  ConfigFields(const json::Value& object, std::string path) : object_(object), path_(std::move(path)) {}

  /// The field's value, or nullptr where it is absent or null.
  const json::Value* Find(std::string_view name) const;

  /// True where the field is there and null: for most classes that switches something off.
  bool IsNull(std::string_view name) const;

  /// A whole number in [minimum, maximum] that must be there.
  std::int64_t Integer(std::string_view name, std::int64_t minimum, std::int64_t maximum);
  /// The same; absent or null gives `fallback` and notes the name.
  std::int64_t IntegerOr(std::string_view name, std::int64_t minimum, std::int64_t maximum, std::int64_t fallback);
  /// A number in [minimum, maximum]; absent or null gives `fallback` and notes the name.
  double NumberOr(std::string_view name, double minimum, double maximum, double fallback);
  /// The same for a field that has two names; the first that is there counts.
  std::int64_t IntegerOr(std::string_view name, std::string_view other_name, std::int64_t minimum, std::int64_t maximum,
                         std::int64_t fallback) {
    return IntegerOr(Find(name) == nullptr && Find(other_name) != nullptr ? other_name : name, minimum, maximum,
                     fallback);
  }
  /// A list of whole numbers in [minimum, maximum]; absent or null gives an empty one without a note.
  std::vector<std::int64_t> Integers(std::string_view name, std::int64_t minimum, std::int64_t maximum);
  /// A list of exactly `count` numbers in [minimum, maximum] that must be there.
  std::vector<double> Numbers(std::string_view name, std::int64_t count, double minimum, double maximum);
  /// Switches and names: absent or null gives `fallback` without a note.
  bool BoolOr(std::string_view name, bool fallback);
  std::string TextOr(std::string_view name, std::string_view fallback);

  /// Records a failure of the caller's own check. The first two put the file's name before the message.
  void FailInput(const std::string& message) { Fail(InvalidInput(path_ + ": " + message)); }
  void FailUnsupported(const std::string& message) { Fail(Unsupported(path_ + ": " + message)); }
  void Fail(Status status);
  void NoteDefault(std::string_view name) { defaults_.emplace_back(name); }

  const Status& status() const { return status_; }
  const std::string& path() const { return path_; }
  /// Names of the numbers that were absent, sorted.
  std::vector<std::string> defaults() const;

 private:
  const json::Value& object_;
  std::string path_;
  Status status_;
  std::vector<std::string> defaults_;
};

}  // namespace draftmill

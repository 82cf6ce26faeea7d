// What pipeline.yaml may say under `tokenize:`, read and typed. docs/configuration.md describes each parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/parameter.h"

namespace draftmill {

enum class TooLong : std::uint8_t { kTruncate, kDrop, kError };
enum class TrainOn : std::uint8_t { kAllAssistantTurns, kLastAssistantTurn };
enum class Expand : std::uint8_t { kAuto, kNone, kPerTurn };
enum class Reasoning : std::uint8_t { kAsTemplate, kKeep, kStrip };
enum class SpecialInText : std::uint8_t { kAsModel, kAsText, kReject };

struct TokenizeOptions {
  std::string template_file;  ///< empty: the model's own
  json::Object variables;
  std::string template_now = "2025-01-01T00:00:00";
  std::optional<std::int64_t> max_length;  ///< nothing: the model's own limit
  TooLong too_long = TooLong::kTruncate;
  TrainOn train_on = TrainOn::kAllAssistantTurns;
  Expand expand = Expand::kAuto;
  Reasoning reasoning = Reasoning::kAsTemplate;
  bool train_on_reasoning = true;
  bool supervise_stop_token = true;
  std::vector<std::string> stop_tokens;  ///< in addition to the model's own
  std::int64_t min_supervised_tokens = 2;
  SpecialInText special_in_text = SpecialInText::kAsModel;

  /// From checked values of the stage's section.
  static TokenizeOptions From(const ParameterValues& values);
};

}  // namespace draftmill

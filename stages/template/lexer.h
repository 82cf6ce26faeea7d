// The tokens of a chat template, exactly as jinja2's lexer sees them with trim_blocks and lstrip_blocks set.
// Followed source: jinja2 3.1, lexer.py. Pure function, safe from any thread; a refusal names the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace draftmill::jinja {

enum class TokenType : std::uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 0;
  std::string text;  ///< data, name, operator as written; a string with its escapes resolved; a number without '_'
};

/// Templates are a few KiB of a few thousand tokens; nothing real comes near these.
inline constexpr std::size_t kMaximumTemplateBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaximumTokens = std::size_t{1} << 17;

Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace draftmill::jinja

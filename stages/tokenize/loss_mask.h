// Which tokens of a rendered conversation the model would have had to emit (docs/loss_mask.md states the rule).
//
// For each assistant message: its text in the rendering, after the longest common prefix with what
// add_generation_prompt appends after the messages before it, through the last stop token that the template wrote into
// it. Found by provenance, never by searching for strings, so that nothing a user wrote can move it. Pure functions,
// safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stages/tokenize/conversation_renderer.h"
#include "stages/tokenize/tokenizer.h"

namespace draftmill {

/// One assistant message that is to be supervised.
struct SupervisedTurn {
  std::int32_t message = 0;
  GenerationPrompt prompt;  ///< what add_generation_prompt appends after the messages before it
};

struct LossMaskOptions {
  std::span<const std::int32_t> stop_tokens;  ///< ascending
  bool supervise_stop_token = true;
  bool train_on_reasoning = true;
  bool use_generation_blocks = false;  ///< the template marks what is supervised itself
};

struct LossMaskResult {
  std::vector<std::uint8_t> mask;  ///< [tokens], 0 or 1
  std::int64_t supervised_tokens = 0;
  std::int64_t boundary_tokens = 0;        ///< stand on both sides of a boundary and are unsupervised
  std::int64_t turns_without_stop = 0;     ///< neither the turn nor the token after it is a stop token
  std::int64_t turns_stopped_by_next = 0;  ///< the next role's token is the stop token, as in GLM's templates
  std::int32_t last_supervised_message = -1;
};

/// Fills `result`, which is overwritten. `turns` are ascending by message.
void ComputeLossMask(const RenderedText& rendered, const std::vector<jinja::FieldSlot>& slots,
                     const std::vector<MessageRole>& roles, const Encoding& encoding,
                     std::span<const SupervisedTurn> turns, const LossMaskOptions& options, LossMaskResult& result);

}  // namespace draftmill

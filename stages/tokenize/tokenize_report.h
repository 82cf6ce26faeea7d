// What the tokenize stage counts while it works (docs/loss_mask.md describes each counter). Plain data, no threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace draftmill {

/// Counts for the mask report. Sums of chunks give the report of a run.
struct TokenizeReport {
  std::int64_t rows = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t boundary_tokens = 0;  ///< on both sides of a boundary of the mask: unsupervised
  std::int64_t truncated_samples = 0;
  std::int64_t samples_without_supervision = 0;  ///< went to quarantine
  std::int64_t rows_per_turn = 0;                ///< rows of which one sample per turn was made
  std::int64_t turns_stopped_by_next = 0;        ///< the next role's token is the stop token
  std::int64_t turns_without_stop = 0;           ///< no stop token at all
  std::int64_t special_tokens_in_text = 0;       ///< control tokens that stand in a message's own text
  std::int64_t unrendered_contents = 0;          ///< messages of whose content the template rendered nothing
  std::int64_t unrendered_reasonings = 0;
  std::int64_t unrendered_tool_calls = 0;
  std::int64_t unbalanced_think_samples = 0;  ///< as many <think> as </think> do not stand in the text
  std::int64_t pretokenized_rows = 0;
  std::int64_t pretokenized_text_differs = 0;  ///< own ids of the row's text are others; the row is kept

  /// Every counter with its name, in the order above.
  std::vector<std::pair<std::string_view, std::int64_t>> Counters() const;
  void Add(const TokenizeReport& other);
};

}  // namespace draftmill

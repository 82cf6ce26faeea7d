#include "stages/tokenize/tokenize_report.h"

namespace draftmill {

std::vector<std::pair<std::string_view, std::int64_t>> TokenizeReport::Counters() const {
  return {{"rows", rows},
          {"samples", samples},
          {"tokens", tokens},
          {"supervised_tokens", supervised_tokens},
          {"boundary_tokens", boundary_tokens},
          {"truncated_samples", truncated_samples},
          {"samples_without_supervision", samples_without_supervision},
          {"rows_per_turn", rows_per_turn},
          {"turns_stopped_by_next", turns_stopped_by_next},
          {"turns_without_stop", turns_without_stop},
          {"special_tokens_in_text", special_tokens_in_text},
          {"unrendered_contents", unrendered_contents},
          {"unrendered_reasonings", unrendered_reasonings},
          {"unrendered_tool_calls", unrendered_tool_calls},
          {"unbalanced_think_samples", unbalanced_think_samples},
          {"pretokenized_rows", pretokenized_rows},
          {"pretokenized_text_differs", pretokenized_text_differs}};
}

void TokenizeReport::Add(const TokenizeReport& other) {
  rows += other.rows;
  samples += other.samples;
  tokens += other.tokens;
  supervised_tokens += other.supervised_tokens;
  boundary_tokens += other.boundary_tokens;
  truncated_samples += other.truncated_samples;
  samples_without_supervision += other.samples_without_supervision;
  rows_per_turn += other.rows_per_turn;
  turns_stopped_by_next += other.turns_stopped_by_next;
  turns_without_stop += other.turns_without_stop;
  special_tokens_in_text += other.special_tokens_in_text;
  unrendered_contents += other.unrendered_contents;
  unrendered_reasonings += other.unrendered_reasonings;
  unrendered_tool_calls += other.unrendered_tool_calls;
  unbalanced_think_samples += other.unbalanced_think_samples;
  pretokenized_rows += other.pretokenized_rows;
  pretokenized_text_differs += other.pretokenized_text_differs;
}

}  // namespace draftmill

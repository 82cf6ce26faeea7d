#include "pipeline/reports/mask_report.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "pipeline/progress/format_units.h"

namespace draftmill {
namespace {

/// 0 for a counter that an older program did not have.
std::int64_t CountOf(const std::vector<ReportCounter>& counters, std::string_view name) {
  for (const ReportCounter& counter : counters) {
    if (counter.counter == name) return counter.count;
  }
  return 0;
}

double SupervisedShare(const std::vector<ReportCounter>& counters) {
  const std::int64_t tokens = CountOf(counters, "tokens");
  if (tokens == 0) return 0;
  return static_cast<double>(CountOf(counters, "supervised_tokens")) / static_cast<double>(tokens);
}

}  // namespace

std::string MaskCountersAsJson(const TokenizeReport& report) {
  json::Object object;
  for (const auto& [name, count] : report.Counters()) object.emplace_back(std::string(name), count);
  return json::Write(json::Value(std::move(object)));
}

json::Value MaskFacts(const std::vector<ReportCounter>& counters) {
  json::Object facts;
  if (!counters.empty()) facts.emplace_back("supervised_share", SupervisedShare(counters));
  for (const ReportCounter& counter : counters) facts.emplace_back(counter.counter, counter.count);
  return json::Value(std::move(facts));
}

std::vector<std::string> MaskLines(const std::vector<ReportCounter>& counters) {
  if (counters.empty()) return {};
  const auto count = [&counters](std::string_view name) { return FormatCount(CountOf(counters, name)); };
  std::vector<std::string> lines = {
      fmt::format("{:.1f} % of {} tokens supervised; samples without supervision: {}; boundary tokens: {}; cut: {}",
                  100 * SupervisedShare(counters), count("tokens"), count("samples_without_supervision"),
                  count("boundary_tokens"), count("truncated_samples")),
      fmt::format("unbalanced think tags: {}; control tokens in text: {}; not rendered: {} contents, {} reasonings, {} "
                  "tool calls",
                  count("unbalanced_think_samples"), count("special_tokens_in_text"), count("unrendered_contents"),
                  count("unrendered_reasonings"), count("unrendered_tool_calls"))};
  if (CountOf(counters, "turns_stopped_by_next") + CountOf(counters, "turns_without_stop") > 0) {
    lines.push_back(fmt::format("turns ended by the next role's token: {}; without a stop token: {}",
                                count("turns_stopped_by_next"), count("turns_without_stop")));
  }
  if (CountOf(counters, "pretokenized_rows") > 0) {
    lines.push_back(fmt::format("pre-tokenized rows: {}; with other ids than their text gives here: {}",
                                count("pretokenized_rows"), count("pretokenized_text_differs")));
  }
  return lines;
}

}  // namespace draftmill

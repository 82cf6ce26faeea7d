#include "pipeline/stored_facts.h"

#include <charconv>
#include <string>

namespace draftmill {
namespace {

Result<std::optional<std::int64_t>> IntegerFact(StateReader& state, std::string_view name) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<std::string> text, state.Fact(name));
  if (!text) return std::optional<std::int64_t>();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value <= 0) {
    return Corrupt("state.db holds no number under " + std::string(name) + " but " + *text);
  }
  return std::optional<std::int64_t>(value);
}

}  // namespace

Result<StoredSizes> ReadStoredSizes(StateReader& state) {
  StoredSizes sizes;
  DRAFTMILL_ASSIGN_OR_RETURN(sizes.batch_tokens, IntegerFact(state, kFactBatchTokens));
  DRAFTMILL_ASSIGN_OR_RETURN(sizes.block_tokens, IntegerFact(state, kFactBlockTokens));
  return sizes;
}

void StoreSizes(StateWriter& state, const PlanParameters& plan) {
  state.SetFact(std::string(kFactBatchTokens), std::to_string(plan.batch_tokens));
  state.SetFact(std::string(kFactBlockTokens), std::to_string(plan.block_tokens));
}

}  // namespace draftmill

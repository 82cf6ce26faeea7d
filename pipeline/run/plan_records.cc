#include "pipeline/run/plan_records.h"

#include <numeric>
#include <string>
#include <string_view>

#include "base/json.h"
#include "state/sqlite.h"

namespace draftmill {
namespace {

/// JSON text packs to a quarter or less, parsed values take about three times the text, tokens about as much as it.
constexpr std::int64_t kMemoryPerPackedByte = 16;
constexpr std::int64_t kMemoryPerRow = 512;

json::Value ParametersAsJson(const PlanParameters& parameters) {
  return json::Object{{"batch_tokens", parameters.batch_tokens},
                      {"block_tokens", parameters.block_tokens},
                      {"shard_bytes", parameters.shard_bytes},
                      {"bytes_per_token", parameters.bytes_per_token}};
}

/// Which of the ranges holds each index, for consecutive ranges.
std::vector<std::int64_t> Owners(const std::vector<PlanRange>& ranges, std::size_t count) {
  std::vector<std::int64_t> owners(count);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    for (std::int64_t at = ranges[i].first; at < ranges[i].first + ranges[i].count; ++at) {
      owners[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(i);
    }
  }
  return owners;
}

std::int64_t SupervisedOf(const TokenizedChunk& chunk, std::size_t sample) {
  const auto first = chunk.loss_mask.begin() + chunk.cu_seqlens[sample];
  const auto last = chunk.loss_mask.begin() + chunk.cu_seqlens[sample + 1];
  return std::accumulate(first, last, std::int64_t{0});
}

std::vector<SampleRecord> SamplesOf(const TokenizedChunk& chunk, const ChunkPlan& plan) {
  const std::vector<std::int64_t> batch_of_position = Owners(plan.batches, plan.order.size());
  std::vector<SampleRecord> samples(plan.order.size());
  for (std::size_t position = 0; position < plan.order.size(); ++position) {
    const auto i = static_cast<std::size_t>(plan.order[position]);
    samples[i] = {.sample_id = chunk.sample_id[i],
                  .variant = chunk.variant[i],
                  .batch = batch_of_position[position],
                  .position = static_cast<std::int64_t>(position),
                  .tokens = chunk.cu_seqlens[i + 1] - chunk.cu_seqlens[i],
                  .supervised_tokens = SupervisedOf(chunk, i),
                  .turn = chunk.turn[i],
                  .source = chunk.source[i]};
  }
  return samples;
}

}  // namespace

std::int64_t ChunkMemoryBytes(const ChunkRecord& chunk) {
  return chunk.bytes * kMemoryPerPackedByte + chunk.rows * kMemoryPerRow;
}

ChunkPlanRecord PlanRecordOf(const ChunkWork& work, const PlanParameters& parameters) {
  const ChunkPlan& plan = work.plan;
  ChunkPlanRecord record{.chunk = work.ticket.chunk,
                         .plan_hash = ToHex(plan.plan_hash),
                         .plan = {},
                         .batches = {},
                         .shards = {},
                         .samples = SamplesOf(work.tokens, plan)};
  const std::string text = json::Write(ParametersAsJson(parameters), json::Style::kCanonical);
  record.plan.assign(text.begin(), text.end());
  const std::vector<std::int64_t> block_of = Owners(plan.blocks, plan.batches.size());
  const std::vector<std::int64_t> shard_of = Owners(plan.shards, plan.batches.size());
  for (std::size_t i = 0; i < plan.batches.size(); ++i) {
    record.batches.push_back({.batch = static_cast<std::int64_t>(i),
                              .block = block_of[i],
                              .shard = shard_of[i],
                              .samples = plan.batches[i].count,
                              .tokens = plan.batch_tokens[i],
                              .bytes = plan.batch_tokens[i] * parameters.bytes_per_token});
  }
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    ShardRecord shard{
        .shard = static_cast<std::int64_t>(i), .first_batch = plan.shards[i].first, .batches = plan.shards[i].count};
    for (std::int64_t batch = shard.first_batch; batch < shard.first_batch + shard.batches; ++batch) {
      shard.samples += plan.batches[static_cast<std::size_t>(batch)].count;
      shard.tokens += plan.batch_tokens[static_cast<std::size_t>(batch)];
    }
    record.shards.push_back(shard);
  }
  return record;
}

Result<PlanParameters> PlanParametersFromBytes(std::span<const std::uint8_t> stored) {
  const std::string text(stored.begin(), stored.end());
  const Result<json::Value> value = json::Parse(text);
  PlanParameters parameters;
  const auto read = [&](std::string_view name, std::int64_t& out) {
    const json::Value* member = value->Find(name);
    if (member == nullptr || !member->is_integer() || member->as_integer() <= 0) return false;
    out = member->as_integer();
    return true;
  };
  if (value.ok() && read("batch_tokens", parameters.batch_tokens) && read("block_tokens", parameters.block_tokens) &&
      read("shard_bytes", parameters.shard_bytes) && read("bytes_per_token", parameters.bytes_per_token)) {
    return parameters;
  }
  return sqlite::Damaged("state.db", "a plan cannot be read");
}

std::int64_t ShardOfBatch(const ChunkPlan& plan, std::int64_t batch) {
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    if (batch < plan.shards[i].first + plan.shards[i].count) return static_cast<std::int64_t>(i);
  }
  DRAFTMILL_CHECK(false, "a batch lies in no shard of its plan");
}

}  // namespace draftmill

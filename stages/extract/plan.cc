#include "stages/extract/plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace draftmill {
namespace {

/// Samples that are packed together. A chunk has at most 4,096 rows, so only a chunk whose conversations became several
/// samples each has more than one window; the bound keeps first-fit's quadratic worst case small.
constexpr std::int64_t kWindowSamples = 4096;

/// A batch while it is filled.
struct OpenBatch {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> samples;
};

Status CheckParameters(const PlanParameters& parameters) {
  if (parameters.batch_tokens < 1 || parameters.block_tokens < 1 || parameters.shard_bytes < 1 ||
      parameters.bytes_per_token < 1) {
    return Internal("a plan needs positive batch_tokens, block_tokens, shard_bytes and bytes_per_token; got " +
                    std::to_string(parameters.batch_tokens) + ", " + std::to_string(parameters.block_tokens) + ", " +
                    std::to_string(parameters.shard_bytes) + ", " + std::to_string(parameters.bytes_per_token));
  }
  return OkStatus();
}

Status CheckBoundaries(std::span<const std::int64_t> cu_seqlens) {
  if (cu_seqlens.empty() || cu_seqlens.front() != 0) return Internal("cu_seqlens must begin with 0");
  for (std::size_t i = 1; i < cu_seqlens.size(); ++i) {
    if (cu_seqlens[i] <= cu_seqlens[i - 1]) {
      return Internal("cu_seqlens must ascend: sample " + std::to_string(i - 1) + " has no tokens");
    }
  }
  return OkStatus();
}

/// First-fit-decreasing over samples [first, end). Equal lengths keep their order, so the result is a function of the
/// lengths alone.
std::vector<OpenBatch> PackWindow(std::span<const std::int64_t> cu_seqlens, std::int64_t first, std::int64_t end,
                                  std::int64_t budget) {
  const auto length = [&](std::int64_t i) {
    return cu_seqlens[static_cast<std::size_t>(i) + 1] - cu_seqlens[static_cast<std::size_t>(i)];
  };
  std::vector<std::int64_t> by_length(static_cast<std::size_t>(end - first));
  std::iota(by_length.begin(), by_length.end(), first);
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  std::vector<OpenBatch> batches;
  for (const std::int64_t sample : by_length) {
    const std::int64_t tokens = length(sample);
    const auto fits = [&](const OpenBatch& batch) { return batch.tokens + tokens <= budget; };
    auto place = std::find_if(batches.begin(), batches.end(), fits);
    if (place == batches.end()) place = batches.insert(batches.end(), OpenBatch{});
    place->tokens += tokens;
    place->samples.push_back(sample);
  }
  for (OpenBatch& batch : batches) std::sort(batch.samples.begin(), batch.samples.end());
  std::sort(batches.begin(), batches.end(),
            [](const OpenBatch& a, const OpenBatch& b) { return a.samples.front() < b.samples.front(); });
  return batches;
}

/// Cuts `range` of the batches into runs whose tokens stay within `budget`; a batch larger than that is a run alone.
void CutRuns(const std::vector<std::int64_t>& batch_tokens, PlanRange range, std::int64_t budget,
             std::vector<PlanRange>& runs) {
  PlanRange run{range.first, 0};
  std::int64_t tokens = 0;
  for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
    const std::int64_t next = batch_tokens[static_cast<std::size_t>(i)];
    if (run.count > 0 && tokens + next > budget) {
      runs.push_back(run);
      run = {i, 0};
      tokens = 0;
    }
    tokens += next;
    ++run.count;
  }
  if (run.count > 0) runs.push_back(run);
}

/// Numbers as little-endian 64 bit, each list with its length before it.
class PlanHasher {
 public:
  void Add(std::int64_t number) {
    std::array<std::byte, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(static_cast<std::uint64_t>(number) >> (8 * i));
    }
    hash_.Update(bytes);
  }
  void Add(std::span<const std::int64_t> numbers) {
    Add(static_cast<std::int64_t>(numbers.size()));
    for (const std::int64_t number : numbers) Add(number);
  }
  void Add(const std::vector<PlanRange>& ranges) {
    Add(static_cast<std::int64_t>(ranges.size()));
    for (const PlanRange& range : ranges) {
      Add(range.first);
      Add(range.count);
    }
  }
  Hash128 Digest() const { return hash_.Digest128(); }

 private:
  StreamingHash hash_;
};

Hash128 HashPlan(std::span<const std::int64_t> cu_seqlens, const PlanParameters& parameters, const ChunkPlan& plan) {
  PlanHasher hasher;
  hasher.Add(parameters.batch_tokens);
  hasher.Add(parameters.block_tokens);
  hasher.Add(parameters.shard_bytes);
  hasher.Add(parameters.bytes_per_token);
  hasher.Add(cu_seqlens);
  hasher.Add(plan.order);
  hasher.Add(plan.batches);
  hasher.Add(plan.blocks);
  hasher.Add(plan.shards);
  return hasher.Digest();
}

}  // namespace

Result<ChunkPlan> PlanChunk(std::span<const std::int64_t> cu_seqlens, const PlanParameters& parameters) {
  DRAFTMILL_RETURN_IF_ERROR(CheckParameters(parameters));
  DRAFTMILL_RETURN_IF_ERROR(CheckBoundaries(cu_seqlens));
  const auto samples = static_cast<std::int64_t>(cu_seqlens.size()) - 1;
  ChunkPlan plan;
  for (std::int64_t first = 0; first < samples; first += kWindowSamples) {
    const std::int64_t end = std::min(first + kWindowSamples, samples);
    for (const OpenBatch& batch : PackWindow(cu_seqlens, first, end, parameters.batch_tokens)) {
      plan.batches.push_back(
          {static_cast<std::int64_t>(plan.order.size()), static_cast<std::int64_t>(batch.samples.size())});
      plan.batch_tokens.push_back(batch.tokens);
      plan.order.insert(plan.order.end(), batch.samples.begin(), batch.samples.end());
    }
  }
  const PlanRange all{0, static_cast<std::int64_t>(plan.batches.size())};
  CutRuns(plan.batch_tokens, all, std::max<std::int64_t>(1, parameters.shard_bytes / parameters.bytes_per_token),
          plan.shards);
  CutRuns(plan.batch_tokens, all, parameters.block_tokens, plan.blocks);
  plan.plan_hash = HashPlan(cu_seqlens, parameters, plan);
  return plan;
}

}  // namespace draftmill

#include "stages/extract/memory/device_policy.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

namespace draftmill {
namespace {

/// Products run at their full rate from here on, and one attention plan serves nearly every batch.
constexpr std::int64_t kBatchTokens = 32768;
/// Models with experts: 87,381 were 2 % faster than 32,768 (docs/benchmarks.md). Attention's 32-bit offsets hold this many
/// rows of up to 32,767 values.
constexpr std::int64_t kExpertBatchTokens = 65536;
constexpr std::int64_t kFewestTokens = 1024;
/// Below this a layer's products are slower by more than fetching layers costs.
constexpr std::int64_t kFewestResidentTokens = 4096;
/// Blocks as long as these hide a layer's way over a link of 25 GB/s, or from a disk of 2 GB/s, behind its computing.
constexpr std::int64_t kLinkBlockTokens = 65536;
/// Blocks from a disk, and those of experts, who are many and see few of a block's tokens each: 8 of 384 take 10,923 rows
/// of these. With half as many the rate is 0.5 % lower.
constexpr std::int64_t kMostBlockTokens = 524288;
/// What driver, torch and libraries take of a GPU.
constexpr std::int64_t kReserveBytes = std::int64_t{3} << 30;
/// Layers on a GPU at a time where they are fetched: one computes, one is on its way.
constexpr std::int64_t kFetchedLayers = 2;

/// "resident"
const char* DeviceWeightPolicyName(DeviceWeightPolicy policy) {
  switch (policy) {
    case DeviceWeightPolicy::kResident: return "resident";
    case DeviceWeightPolicy::kSharded: return "sharded";
    case DeviceWeightPolicy::kStreamed: return "streamed";
  }
  return "unknown";
}

std::string Gibibytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

class Planner {
 public:
  Planner(const ModelDescription& model, const ExtractOptions& options)
      : model_(model), options_(options), memory_(model.device_memory), devices_(std::max(1, options.device_count)) {}

  Result<DevicePlan> Plan() const {
    if (options_.weights != "auto") {
      const std::optional<DeviceWeightPolicy> named = Named();
      if (!named) {
        return InvalidConfig("extract.weights must be auto, resident, sharded or streamed, not " + options_.weights);
      }
      if (std::optional<DevicePlan> plan = Fit(*named, kFewestTokens))
        return Explained(*plan, "as extract.weights says");
      return Refusal(*named);
    }
    if (std::optional<DevicePlan> plan = Fit(DeviceWeightPolicy::kResident, kFewestResidentTokens)) {
      return Explained(*plan, "they fit on each GPU");
    }
    const std::string too_large = Gibibytes(memory_.resident_bytes) + " of weights do not fit on a GPU with " +
                                  Gibibytes(options_.device_bytes) + " free";
    if (devices_ > 1) {
      if (std::optional<DevicePlan> plan = Fit(DeviceWeightPolicy::kSharded, kFewestTokens)) {
        return Explained(*plan, too_large + ", but on " + std::to_string(devices_) + " together");
      }
    }
    if (std::optional<DevicePlan> plan = Fit(DeviceWeightPolicy::kStreamed, kFewestTokens)) {
      return Explained(*plan, too_large);
    }
    return Refusal(DeviceWeightPolicy::kStreamed);
  }

 private:
  std::optional<DeviceWeightPolicy> Named() const {
    for (const DeviceWeightPolicy policy :
         {DeviceWeightPolicy::kResident, DeviceWeightPolicy::kSharded, DeviceWeightPolicy::kStreamed}) {
      if (options_.weights == DeviceWeightPolicyName(policy)) return policy;
    }
    return std::nullopt;
  }

  /// The plan with the largest batches, and then the largest blocks, that fit; none where not even the smallest do.
  std::optional<DevicePlan> Fit(DeviceWeightPolicy policy, std::int64_t fewest_tokens) const {
    const std::int64_t wanted = model_.spans_blocks ? kExpertBatchTokens : kBatchTokens;
    const std::int64_t most = options_.batch_tokens > 0 ? options_.batch_tokens : wanted;
    const std::int64_t fewest = options_.batch_tokens > 0 ? options_.batch_tokens : fewest_tokens;
    for (std::int64_t tokens = most; tokens >= fewest; tokens /= 2) {
      const ExtractSizes least{tokens, std::max(tokens, options_.block_tokens)};
      std::optional<DevicePlan> plan = FitSizes(policy, least, FewestInFlight());
      if (!plan) continue;
      if (options_.block_tokens > 0) return plan;
      for (std::int64_t batches = WantedTokens(*plan) / tokens; batches > 1; --batches) {
        // Larger blocks of a stream from memory must not push it to the disk.
        std::optional<DevicePlan> larger = FitSizes(policy, {tokens, batches * tokens}, 2);
        if (larger && larger->from_memory == plan->from_memory) return larger;
      }
      return plan;
    }
    return std::nullopt;
  }

  /// A block that is given is taken as it is, one at a time where there is no room for two.
  int FewestInFlight() const { return options_.block_tokens > 0 ? 1 : 2; }

  std::int64_t WantedTokens(const DevicePlan& plan) const {
    const bool from_disk = plan.weights == DeviceWeightPolicy::kStreamed && !plan.from_memory;
    if (from_disk || model_.spans_blocks) return kMostBlockTokens;
    return plan.weights == DeviceWeightPolicy::kResident ? 0 : kLinkBlockTokens;
  }

  /// The plan for given sizes, with as many blocks in flight as the host has room for; none where it does not fit.
  std::optional<DevicePlan> FitSizes(DeviceWeightPolicy policy, const ExtractSizes& sizes, int fewest_in_flight) const {
    DevicePlan plan;
    plan.weights = policy;
    plan.sizes = sizes;
    plan.device_bytes = DeviceBytes(policy, sizes);
    if (plan.device_bytes > options_.device_bytes) return std::nullopt;
    for (const bool from_memory : {true, false}) {
      if (!from_memory && policy != DeviceWeightPolicy::kStreamed) break;
      for (plan.blocks_in_flight = 2; plan.blocks_in_flight >= fewest_in_flight; --plan.blocks_in_flight) {
        plan.from_memory = from_memory;
        plan.host_weight_bytes = HostWeightBytes(plan);
        plan.host_bytes = HostStateBytes(plan) + plan.host_weight_bytes;
        if (options_.memory_bytes <= 0 || plan.host_bytes <= options_.memory_bytes) return plan;
      }
    }
    return std::nullopt;
  }

  std::int64_t LayersBytes() const { return memory_.resident_bytes - memory_.shared_bytes; }

  std::int64_t DeviceBytes(DeviceWeightPolicy policy, const ExtractSizes& sizes) const {
    const std::int64_t tokens =
        memory_.token_bytes * sizes.batch_tokens + memory_.block_token_bytes * sizes.block_tokens;
    const std::int64_t fetched = kFetchedLayers * memory_.layer_bytes;
    std::int64_t layers = LayersBytes();
    if (policy == DeviceWeightPolicy::kSharded) layers = layers / devices_ + fetched;
    if (policy == DeviceWeightPolicy::kStreamed) layers = fetched;
    return kReserveBytes + memory_.shared_bytes + layers + tokens;
  }

  std::int64_t HostStateBytes(const DevicePlan& plan) const {
    const std::int64_t state_bytes = 2 * static_cast<std::int64_t>(model_.layers.size()) * model_.hidden_size;
    // One batch more than is in flight is with the shard writer.
    return state_bytes * (plan.blocks_in_flight * plan.sizes.block_tokens + plan.sizes.batch_tokens) * devices_;
  }

  std::int64_t HostWeightBytes(const DevicePlan& plan) const {
    if (plan.weights != DeviceWeightPolicy::kStreamed) return 0;
    return plan.from_memory ? LayersBytes() : (kHeldLayers + 1) * memory_.layer_bytes;
  }

  DevicePlan Explained(DevicePlan plan, const std::string& why) const {
    plan.reason = std::string("weights ") + DeviceWeightPolicyName(plan.weights);
    if (plan.weights == DeviceWeightPolicy::kSharded) plan.reason += " over " + std::to_string(devices_) + " GPUs";
    if (plan.weights == DeviceWeightPolicy::kStreamed) {
      plan.reason += plan.from_memory ? " from pinned host memory" : " from disk";
    }
    plan.reason += ": " + why + ". Each GPU needs " + Gibibytes(plan.device_bytes) + " and has " +
                   Gibibytes(options_.device_bytes) + " free, for batches of " +
                   std::to_string(plan.sizes.batch_tokens) + " and blocks of " +
                   std::to_string(plan.sizes.block_tokens) + " tokens; " + Gibibytes(plan.host_bytes) +
                   " of the host are pinned";
    return plan;
  }

  Status Refusal(DeviceWeightPolicy policy) const {
    const std::int64_t batch = options_.batch_tokens > 0 ? options_.batch_tokens : kFewestTokens;
    const ExtractSizes sizes{batch, std::max(batch, options_.block_tokens)};
    const bool given = options_.batch_tokens > 0 || options_.block_tokens > 0;
    DevicePlan least;
    least.weights = policy;
    least.sizes = sizes;
    least.blocks_in_flight = FewestInFlight();
    least.from_memory = false;
    const std::int64_t device = DeviceBytes(policy, sizes);
    std::string text = std::string("the model does not fit with weights ") + DeviceWeightPolicyName(policy) +
                       ", batches of " + std::to_string(sizes.batch_tokens) + " and blocks of " +
                       std::to_string(sizes.block_tokens) + " tokens: each GPU would need " + std::to_string(device) +
                       " bytes and has " + std::to_string(options_.device_bytes) + " free; the host would need " +
                       std::to_string(HostStateBytes(least) + HostWeightBytes(least)) + " bytes, and " +
                       std::to_string(options_.memory_bytes) + " are allowed. Nothing was loaded. ";
    if (device > options_.device_bytes) {
      text += policy == DeviceWeightPolicy::kStreamed ? "End what else runs on the GPU"
                                                      : "Set extract.weights to auto, end what else runs on the GPU";
      text += given ? ", lower extract.batch_tokens or extract.block_tokens" : "";
    } else {
      text +=
          std::string("Raise limits.memory") + (given ? ", or lower extract.batch_tokens or extract.block_tokens" : "");
    }
    return OutOfMemory(text + ", or set extract.device to cpu");
  }

  const ModelDescription& model_;
  const ExtractOptions& options_;
  const EngineMemory& memory_;
  const std::int64_t devices_;
};

}  // namespace

Result<DevicePlan> PlanDevices(const ModelDescription& model, const ExtractOptions& options) {
  return Planner(model, options).Plan();
}

}  // namespace draftmill

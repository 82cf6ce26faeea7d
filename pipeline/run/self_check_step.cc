#include "pipeline/run/self_check_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "formats/shard_reader.h"
#include "kernels/bfloat16.h"
#include "stages/extract/cpu/head_reading.h"
#include "stages/extract/self_check.h"

namespace draftmill {
namespace {

constexpr std::int64_t kCheckedShards = 8;
constexpr std::int64_t kSamplesOfShard = 8;
/// Positions at which the head is read, over all shards; the price of one is three products with the whole head.
constexpr std::int64_t kPositions = 512;
/// Fewer positions than this say nothing.
constexpr std::int64_t kFewestPositions = 128;

/// What was read of the shards so far.
struct Reading {
  std::int64_t positions_of_sample = 0;  ///< at most; 0 where x_n is not kept
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::vector<std::vector<double>> norms;  ///< [shards][layers]
  std::vector<float> states;               ///< of x_n, [positions, hidden]
  std::vector<CheckedTokens> positions;
};

/// Up to `most` of `count` things, spread evenly.
std::vector<std::int64_t> Spread(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> chosen;
  const std::int64_t wanted = std::min(count, most);
  for (std::int64_t i = 0; i < wanted; ++i) chosen.push_back(i * count / wanted);
  return chosen;
}

double RowNorm(const std::uint16_t* row, std::int64_t hidden) {
  double squares = 0;
  for (std::int64_t i = 0; i < hidden; ++i) {
    const auto value = static_cast<double>(ToFloat(Bf16{row[i]}));
    squares += value * value;
  }
  return std::sqrt(squares);
}

void TakePositions(const ShardContents& shard, std::int64_t sample, const std::vector<std::uint16_t>& states,
                   Reading& reading) {
  const std::int64_t first = shard.cu_seqlens[static_cast<std::size_t>(sample)];
  const std::int64_t tokens = shard.cu_seqlens[static_cast<std::size_t>(sample) + 1] - first;
  const std::vector<std::int64_t> bounds{0, tokens};
  const auto mask =
      std::span(shard.loss_mask).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens));
  for (const std::int64_t p : CheckedPositions(mask, bounds, reading.positions_of_sample)) {
    const std::int32_t* ids = shard.input_ids.data() + first + p;
    reading.positions.push_back({ids[0], ids[1], ids[2]});
    const std::int64_t row = ((p + 1) * shard.num_layers - 1) * shard.hidden_size;
    for (std::int64_t i = 0; i < shard.hidden_size; ++i) {
      reading.states.push_back(ToFloat(Bf16{states[static_cast<std::size_t>(row + i)]}));
    }
  }
}

Status ReadShard(FileSystem& files, const std::string& path, Reading& reading) {
  DRAFTMILL_ASSIGN_OR_RETURN(ShardReader reader, ShardReader::Open(files, path));
  const ShardContents& shard = reader.contents();
  std::vector<double> sums(static_cast<std::size_t>(shard.num_layers), 0.0);
  std::int64_t tokens = 0;
  for (const std::int64_t sample : Spread(shard.samples(), kSamplesOfShard)) {
    if (shard.sample_state[static_cast<std::size_t>(sample)] != 0) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::uint16_t> states, reader.ReadStates(sample));
    const std::int64_t rows = static_cast<std::int64_t>(states.size()) / shard.hidden_size;
    for (std::int64_t row = 0; row < rows; ++row) {
      sums[static_cast<std::size_t>(row % shard.num_layers)] +=
          RowNorm(states.data() + row * shard.hidden_size, shard.hidden_size);
    }
    tokens += rows / shard.num_layers;
    ++reading.samples;
    if (reading.positions_of_sample > 0) TakePositions(shard, sample, states, reading);
  }
  if (tokens == 0) return OkStatus();
  for (double& sum : sums) sum /= static_cast<double>(tokens);
  reading.tokens += tokens;
  reading.norms.push_back(std::move(sums));
  return OkStatus();
}

json::Value NormFacts(const ModelDescription& model, const Reading& reading) {
  json::Array layers;
  for (std::size_t slot = 0; slot < model.layers.size(); ++slot) {
    json::Array by_shard;
    for (const std::vector<double>& shard : reading.norms) by_shard.emplace_back(shard[slot]);
    layers.push_back(
        json::Object{{"layer", std::int64_t{model.layers[slot]}}, {"mean_norm_by_shard", std::move(by_shard)}});
  }
  return layers;
}

HeadAgreement AgreementOf(const json::Value& facts) {
  const auto count = [&](const char* name) {
    const json::Value* value = facts.Find(name);
    return value != nullptr && value->is_integer() ? value->as_integer() : std::int64_t{0};
  };
  return {count("positions"), count("as_stored"),    count("one_early"),
          count("one_late"),  count("without_norm"), count("normed_twice")};
}

void WarnOfNorms(const json::Value& layer, std::vector<std::string>& warnings) {
  const json::Value* norms = layer.Find("mean_norm_by_shard");
  if (norms == nullptr || !norms->is_array() || norms->as_array().empty()) return;
  const double first = norms->as_array().front().as_double();
  for (const json::Value& norm : norms->as_array()) {
    if (LayerOutsideBand({norm.as_double()}, {first}) < 0) continue;
    warnings.push_back(
        fmt::format("the mean norm of x_{} is {:.4g} in one shard and {:.4g} in the first: look at the samples of both",
                    layer.Find("layer")->as_integer(), norm.as_double(), first));
    return;
  }
}

}  // namespace

Result<json::Value> CheckPublishedStates(FileSystem& files, const std::string& work_folder,
                                         const std::vector<std::string>& shards, const std::string& model_folder,
                                         const ModelDescription& model) {
  const std::vector<std::int64_t> chosen = Spread(static_cast<std::int64_t>(shards.size()), kCheckedShards);
  Reading reading;
  if (!chosen.empty() && !model.layers.empty() && model.layers.back() == model.num_layers) {
    reading.positions_of_sample = kPositions / (static_cast<std::int64_t>(chosen.size()) * kSamplesOfShard);
  }
  for (const std::int64_t shard : chosen) {
    const std::string path = JoinPath(work_folder, shards[static_cast<std::size_t>(shard)]);
    DRAFTMILL_RETURN_IF_ERROR(ReadShard(files, path, reading));
  }
  // A build without the engine, which may make a vocabulary map anew, has no head to read: null says so.
  json::Value agreement;
  if (!reading.positions.empty() && ExtractorIsBuilt()) {
    DRAFTMILL_ASSIGN_OR_RETURN(const HeadAgreement read,
                               ReadHeadOfFolder(model_folder, reading.states, reading.positions));
    agreement = AgreementFacts(read);
  }
  return json::Value(json::Object{{"samples", reading.samples},
                                  {"tokens", reading.tokens},
                                  {"layers", NormFacts(model, reading)},
                                  {"head_agreement", std::move(agreement)}});
}

std::vector<std::string> SelfCheckWarnings(const json::Value& facts) {
  std::vector<std::string> warnings;
  if (const json::Value* layers = facts.Find("layers"); layers != nullptr && layers->is_array()) {
    for (const json::Value& layer : layers->as_array()) WarnOfNorms(layer, warnings);
  }
  const json::Value* found = facts.Find("head_agreement");
  if (found == nullptr || !found->is_object()) return warnings;
  const HeadAgreement agreement = AgreementOf(*found);
  if (agreement.positions >= kFewestPositions && !agreement.IsClear()) {
    warnings.push_back(
        fmt::format("the model's head agrees with the text at {} of {} positions, and at {} in a wrong reading of the "
                    "states: they may not be "
                    "what a trainer takes them for. `draftmill doctor model` tries the model alone; check also that "
                    "the tokenizer is its own",
                    agreement.as_stored, agreement.positions, agreement.BestWrong()));
  }
  return warnings;
}

}  // namespace draftmill

#include "stages/extract/examine_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "formats/records.h"
#include "formats/safetensors.h"
#include "kernels/bfloat16.h"
#include "stages/extract/plan.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr std::int64_t kExaminedPositions = 512;
/// Fewer positions than this say nothing about agreement.
constexpr std::int64_t kFewestPositions = 24;
/// Largest median distance from a reference, by the precision of the computation.
constexpr double kFloatBound = 1e-4;
constexpr double kBfloat16Bound = 4e-2;

/// States that were computed elsewhere.
struct Reference {
  std::vector<std::vector<std::int32_t>> rows;
  std::vector<std::int32_t> layers;
  std::int64_t hidden = 0;
  std::vector<float> states;  ///< [tokens, layers, hidden]
};

Result<std::vector<float>> ReadStates(ReadableFile& file, const std::string& path,
                                      const safetensors::TensorInfo& tensor) {
  if (tensor.dtype == safetensors::Dtype::kF32) return safetensors::ReadTensor<float>(file, path, tensor);
  if (tensor.dtype != safetensors::Dtype::kBf16) return InvalidInput(path + ": hidden_states must be F32 or BF16");
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
  DRAFTMILL_RETURN_IF_ERROR(safetensors::ReadTensorBytes(file, path, tensor, bytes));
  std::vector<float> states(bytes.size() / 2);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto low = std::to_integer<std::uint32_t>(bytes[2 * i]);
    const auto high = std::to_integer<std::uint32_t>(bytes[2 * i + 1]);
    states[i] = ToFloat(Bf16{static_cast<std::uint16_t>(low | (high << 8))});
  }
  return states;
}

Result<std::vector<std::int32_t>> LayersOf(const safetensors::Header& header, const std::string& path) {
  for (const auto& [key, text] : header.metadata()) {
    if (key != "layers") continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value list, json::Parse(text));
    std::vector<std::int32_t> layers;
    if (!list.is_array()) break;
    for (const json::Value& layer : list.as_array()) {
      if (!layer.is_integer()) return InvalidInput(path + ": the metadata's layers must be a list of integers");
      layers.push_back(static_cast<std::int32_t>(layer.as_integer()));
    }
    return layers;
  }
  return InvalidInput(path +
                      ": has no list `layers` in its metadata; tools/reference_states.py writes reference states");
}

Result<std::vector<std::vector<std::int32_t>>> CutRows(const std::vector<std::int32_t>& ids,
                                                       const std::vector<std::int64_t>& bounds,
                                                       const std::string& path) {
  std::vector<std::vector<std::int32_t>> rows;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (bounds[i] < 0 || bounds[i] >= bounds[i + 1] || bounds[i + 1] > static_cast<std::int64_t>(ids.size())) {
      return InvalidInput(path + ": cu_seqlens does not ascend from 0 to the number of tokens");
    }
    rows.emplace_back(ids.begin() + bounds[i], ids.begin() + bounds[i + 1]);
  }
  return rows;
}

Result<Reference> ReadReference(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, RealFileSystem().OpenForReading(path));
  DRAFTMILL_ASSIGN_OR_RETURN(const safetensors::Header header, safetensors::ReadHeader(*file, path));
  const safetensors::TensorInfo* states = header.Find("hidden_states");
  const safetensors::TensorInfo* ids = header.Find("input_ids");
  const safetensors::TensorInfo* bounds = header.Find("cu_seqlens");
  if (states == nullptr || ids == nullptr || bounds == nullptr || states->shape.size() != 3) {
    return InvalidInput(path + ": needs hidden_states [tokens, layers, hidden], input_ids and cu_seqlens");
  }
  Reference reference;
  DRAFTMILL_ASSIGN_OR_RETURN(reference.layers, LayersOf(header, path));
  DRAFTMILL_ASSIGN_OR_RETURN(const auto all_ids, safetensors::ReadTensor<std::int32_t>(*file, path, *ids));
  DRAFTMILL_ASSIGN_OR_RETURN(const auto all_bounds, safetensors::ReadTensor<std::int64_t>(*file, path, *bounds));
  DRAFTMILL_ASSIGN_OR_RETURN(reference.rows, CutRows(all_ids, all_bounds, path));
  DRAFTMILL_ASSIGN_OR_RETURN(reference.states, ReadStates(*file, path, *states));
  reference.hidden = states->shape[2];
  if (states->shape[0] != static_cast<std::int64_t>(all_ids.size()) ||
      states->shape[1] != static_cast<std::int64_t>(reference.layers.size())) {
    return InvalidInput(path + ": hidden_states does not have one row for each token and one place for each layer");
  }
  return reference;
}

TokenizedChunk ChunkOf(const std::vector<std::vector<std::int32_t>>& rows) {
  TokenizedChunk chunk;
  chunk.cu_seqlens.push_back(0);
  for (const auto& row : rows) {
    chunk.input_ids.insert(chunk.input_ids.end(), row.begin(), row.end());
    chunk.sample_id.push_back(chunk.samples());
    chunk.variant.push_back(0);
    chunk.cu_seqlens.push_back(chunk.tokens());
  }
  chunk.loss_mask.assign(chunk.input_ids.size(), 1);
  return chunk;
}

/// What was computed, with rows in their own order.
struct Computed {
  std::vector<float> states;  ///< [tokens, layers, hidden]
  std::int64_t bad_rows = 0;
  HeadAgreement agreement;
};

void TakeBatch(const BatchStates& batch, const TokenizedChunk& chunk, std::int64_t width, Computed& computed) {
  std::int64_t done = 0;
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    const auto row = static_cast<std::size_t>(batch.keys[i].sample_id);
    const std::int64_t count = (chunk.cu_seqlens[row + 1] - chunk.cu_seqlens[row]) * width;
    float* out = computed.states.data() + chunk.cu_seqlens[row] * width;
    for (std::int64_t v = 0; v < count; ++v) {
      const auto at = static_cast<std::size_t>(done + v);
      out[v] = batch.float_states.empty() ? ToFloat(Bf16{batch.hidden_states[at]}) : batch.float_states[at];
    }
    done += count;
    computed.bad_rows += batch.sample_state[i];
  }
  computed.agreement.Add(batch.check.agreement);
}

Result<Computed> Compute(Extractor& extractor, const TokenizedChunk& chunk) {
  const std::int64_t width = static_cast<std::int64_t>(extractor.model().layers.size()) * extractor.model().hidden_size;
  Computed computed;
  computed.states.resize(static_cast<std::size_t>(chunk.tokens() * width));
  const PlanParameters one_block{chunk.tokens(), chunk.tokens(), std::numeric_limits<std::int64_t>::max(), width * 2};
  DRAFTMILL_ASSIGN_OR_RETURN(const ChunkPlan plan, PlanChunk(chunk.cu_seqlens, one_block));
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    BlockRequest request{&chunk, &plan, static_cast<std::int64_t>(block), {}};
    for (std::int64_t i = 0; i < plan.blocks[block].count; ++i) request.batches.push_back(plan.blocks[block].first + i);
    DRAFTMILL_RETURN_IF_ERROR(extractor.ExtractBlock(request,
                                                     [&](const BatchStates& batch) {
                                                       TakeBatch(batch, chunk, width, computed);
                                                       return OkStatus();
                                                     },
                                                     {}));
  }
  return computed;
}

double Norm(const float* values, std::int64_t count, const float* minus) {
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]) - (minus == nullptr ? 0.0 : static_cast<double>(minus[i]));
    squares += value * value;
  }
  return std::sqrt(squares);
}

/// Figures of one kept layer; the median distance from the reference goes into `worst_median`.
json::Value LayerFacts(const ModelDescription& model, const Computed& computed,
                       const std::optional<Reference>& reference, std::size_t slot, double& worst_median) {
  const auto layers = static_cast<std::int64_t>(model.layers.size());
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t tokens = static_cast<std::int64_t>(computed.states.size()) / (layers * hidden);
  double norms = 0;
  std::vector<double> distances;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t at = (t * layers + static_cast<std::int64_t>(slot)) * hidden;
    norms += Norm(computed.states.data() + at, hidden, nullptr);
    if (!reference) continue;
    const float* expected = reference->states.data() + at;
    distances.push_back(Norm(computed.states.data() + at, hidden, expected) /
                        std::max(Norm(expected, hidden, nullptr), 1e-30));
  }
  json::Object facts{{"layer", std::int64_t{model.layers[slot]}}, {"mean_norm", norms / static_cast<double>(tokens)}};
  if (reference) {
    std::sort(distances.begin(), distances.end());
    facts.emplace_back("median_distance", distances[distances.size() / 2]);
    facts.emplace_back("largest_distance", distances.back());
    worst_median = std::max(worst_median, distances[distances.size() / 2]);
  }
  return facts;
}

std::string Percent(std::int64_t part, std::int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %%",
                100.0 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1)));
  return text;
}

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

/// What all of it means, in one sentence; `sound` becomes false where it must not be trusted.
std::string Verdict(const Computed& computed, const std::optional<Reference>& reference, double worst_median,
                    double bound, bool& sound) {
  sound = false;
  if (computed.bad_rows > 0) return std::to_string(computed.bad_rows) + " rows have states that are NaN or infinite";
  if (reference && !(worst_median <= bound)) {
    return "the states lie " + Figure(worst_median) + " (median) from the reference, where " + Figure(bound) +
           " is to be expected";
  }
  const HeadAgreement& agreement = computed.agreement;
  const std::string counted = "the head's choice is the next token at " +
                              Percent(agreement.as_stored, agreement.positions) + " of " +
                              std::to_string(agreement.positions) + " positions, at most " +
                              Percent(agreement.BestWrong(), agreement.positions) + " in a wrong reading";
  const std::string near =
      reference ? "the states are those of the reference (median distance " + Figure(worst_median) + "); " : "";
  if (agreement.positions >= kFewestPositions && agreement.IsClear()) {
    sound = true;
    return "sound: " + near + counted;
  }
  sound = reference.has_value();
  return (sound ? "sound: " : "unclear: ") + near + counted +
         (sound ? "" : "; weights that were never trained, a wrong tokenizer or a damaged checkpoint look like this");
}

Result<ModelExamination> Examine(const ExaminationRequest& request, const std::optional<Reference>& reference) {
  ExtractOptions options = request.options;
  options.checked_positions = kExaminedPositions;
  if (reference) options.layers = reference->layers;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Extractor> extractor, Extractor::Create(options));
  const ModelDescription& model = extractor->model();
  if (reference && reference->hidden != model.hidden_size) {
    return InvalidInput(request.reference_path + ": holds states of " + std::to_string(reference->hidden) +
                        " values, this model has " + std::to_string(model.hidden_size));
  }
  const TokenizedChunk chunk = ChunkOf(reference ? reference->rows : request.rows);
  if (chunk.samples() == 0) return InvalidInput("there are no rows to examine the model with");
  DRAFTMILL_ASSIGN_OR_RETURN(const Computed computed, Compute(*extractor, chunk));
  json::Array layers;
  double worst_median = 0;
  for (std::size_t slot = 0; slot < model.layers.size(); ++slot) {
    layers.push_back(LayerFacts(model, computed, reference, slot, worst_median));
  }
  ModelExamination result;
  const double bound = options.dtype == "float32" ? kFloatBound : kBfloat16Bound;
  const std::string verdict = Verdict(computed, reference, worst_median, bound, result.sound);
  result.facts = json::Object{{"verdict", verdict},
                              {"sound", result.sound},
                              {"family", model.family},
                              {"tokens", chunk.tokens()},
                              {"rows_with_bad_states", computed.bad_rows},
                              {"layers", std::move(layers)},
                              {"head_agreement", AgreementFacts(computed.agreement)},
                              {"numerics_environment", extractor->numerics_environment()},
                              {"weights_digest", extractor->weights_digest()}};
  return result;
}

}  // namespace

Result<ModelExamination> ExamineModel(const ExaminationRequest& request) {
  std::optional<Reference> reference;
  if (!request.reference_path.empty()) {
    DRAFTMILL_ASSIGN_OR_RETURN(reference, ReadReference(request.reference_path));
  }
  return Examine(request, reference);
}

}  // namespace draftmill

#include "stages/extract/cpu/head_reading.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "stages/extract/cpu/decoder_numerics.h"
#include "stages/extract/cpu/products.h"
#include "stages/extract/memory/cpu_memory.h"
#include "stages/extract/model/model_folder.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/layer_reader.h"
#include "stages/extract/weights/weight_files.h"

namespace draftmill {
namespace {

/// Rows of the head that are multiplied at once.
constexpr std::int64_t kHeadRows = 1024;

/// The readings of a position, one operand row each.
enum Reading : std::int64_t { kNormed, kPlain, kNormedTwice, kReadings };

void Norm(const ModelHead& head, const float* x, float* out) {
  DecoderKernelsFor<float>(DetectInstructionSet())
      .rms_norm(
          {x, head.norm_weight, out, 1, head.hidden, head.norm_epsilon, head.norm_rounding, head.norm_weight_offset});
}

/// [positions * kReadings, hidden]
AlignedBuffer<float> Operands(const ModelHead& head, std::span<const float> states, std::int64_t positions) {
  AlignedBuffer<float> operands(std::max(positions * kReadings, kMinProductRows) * head.hidden);
  for (std::int64_t p = 0; p < positions; ++p) {
    const float* state = states.data() + p * head.hidden;
    float* rows = operands.data() + p * kReadings * head.hidden;
    Norm(head, state, rows + kNormed * head.hidden);
    std::copy_n(state, head.hidden, rows + kPlain * head.hidden);
    Norm(head, rows + kNormed * head.hidden, rows + kNormedTwice * head.hidden);
  }
  return operands;
}

/// The token of the largest logit so far.
struct Choice {
  float logit = -std::numeric_limits<float>::infinity();
  std::int32_t token = -1;
};

void TakeLargest(const float* logits, std::int64_t first, std::int64_t count, Choice& choice) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (logits[i] > choice.logit) choice = {logits[i], static_cast<std::int32_t>(first + i)};
  }
}

}  // namespace

Status ReadHead(const ModelHead& head, std::span<const float> states, std::span<const CheckedTokens> tokens,
                HeadAgreement& agreement) {
  const auto positions = static_cast<std::int64_t>(tokens.size());
  if (positions == 0) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(LoadProducts());
  const AlignedBuffer<float> operands = Operands(head, states, positions);
  const std::int64_t rows = std::max(positions * kReadings, kMinProductRows);
  AlignedBuffer<float> weights(kHeadRows * head.hidden);
  AlignedBuffer<float> logits(rows * kHeadRows);
  std::vector<Choice> choices(static_cast<std::size_t>(positions * kReadings));
  PrepareProductThread();
  for (std::int64_t first = 0; first < head.vocab_rows; first += kHeadRows) {
    const std::int64_t count = std::min(kHeadRows, head.vocab_rows - first);
    DRAFTMILL_RETURN_IF_ERROR(head.read_rows(first, count, weights.data()));
    MultiplyTransposed(operands.data(), weights.data(), logits.data(), rows, count, head.hidden);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      TakeLargest(logits.data() + static_cast<std::int64_t>(i) * count, first, count, choices[i]);
    }
  }
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    const Choice* choice = choices.data() + p * kReadings;
    agreement.as_stored += choice[kNormed].token == tokens[p].next;
    agreement.one_early += choice[kNormed].token == tokens[p].here;
    agreement.one_late += choice[kNormed].token == tokens[p].after_next;
    agreement.without_norm += choice[kPlain].token == tokens[p].next;
    agreement.normed_twice += choice[kNormedTwice].token == tokens[p].next;
  }
  agreement.positions += positions;
  return OkStatus();
}

Result<HeadAgreement> ReadHeadOfFolder(const std::string& model_folder, std::span<const float> states,
                                       std::span<const CheckedTokens> tokens) {
  DRAFTMILL_ASSIGN_OR_RETURN(const ModelFolder model, OpenModelFolder(model_folder, {0}));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WeightFiles> files, WeightFiles::Open(model.index));
  const DecoderNumerics<float> numerics(model.config, false);
  const std::int64_t hidden = model.config.hidden_size;
  std::vector<float> norm(static_cast<std::size_t>(hidden));
  DRAFTMILL_RETURN_IF_ERROR(LayerReader<float>(model, *files).ReadVector("norm.weight", norm.data()).status());
  const TensorPlace& place =
      model.tensors.Get(model.tensors.Has("lm_head.weight") ? "lm_head.weight" : "embed_tokens.weight");
  const std::int64_t row_bytes = hidden * safetensors::DtypeBits(place.info.dtype) / 8;
  std::vector<std::byte> bytes;
  ModelHead head;
  head.hidden = hidden;
  head.vocab_rows = model.config.vocab_size;
  head.norm_weight = norm.data();
  head.norm_epsilon = static_cast<float>(model.config.norm_eps);
  head.norm_weight_offset = numerics.norm_weight_offset;
  head.norm_rounding = numerics.norm_rounding;
  head.read_rows = [&](std::int64_t first, std::int64_t count, float* rows) -> Status {
    bytes.resize(static_cast<std::size_t>(count * row_bytes));
    DRAFTMILL_RETURN_IF_ERROR(files->ReadBytes(place.file, place.info.offset + first * row_bytes, bytes));
    ConvertElements(place.info.dtype, bytes.data(), rows, count * hidden);
    return OkStatus();
  };
  HeadAgreement agreement;
  DRAFTMILL_RETURN_IF_ERROR(ReadHead(head, states, tokens, agreement));
  return agreement;
}

}  // namespace draftmill

#include "stages/extract/device/device_experts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/decoder_cuda.h"
#include "kernels/expand_cuda.h"
#include "kernels/experts_cuda.h"
#include "stages/extract/device/device_products.h"
#include "stages/extract/device/expert_tiles.h"
#include "stages/extract/memory/device_branch_memory.h"

namespace draftmill {
namespace {

using cuda::Check;
using cuda::ExpandKind;
using cuda::ExpandMatrixArgs;

RouterKind KindOf(RouterScoring scoring) {
  switch (scoring) {
    case RouterScoring::kSoftmax: return RouterKind::kSoftmax;
    case RouterScoring::kSoftmaxChosen: return RouterKind::kSoftmaxChosen;
    case RouterScoring::kSigmoidBiased: return RouterKind::kSigmoidBiased;
  }
  return RouterKind::kSoftmax;
}

ExpandKind KindOf(const PackedExperts& packed) {
  switch (packed.method) {
    case QuantizationMethod::kNone:
    case QuantizationMethod::kBlockFp8: return ExpandKind::kFp8;
    case QuantizationMethod::kMxfp4: return ExpandKind::kMxfp4;
    case QuantizationMethod::kPackedInt4: break;
  }
  switch (packed.scale_type) {
    case ScaleType::kBfloat16: return ExpandKind::kInt4;
    case ScaleType::kFloat16: return ExpandKind::kInt4Half;
    case ScaleType::kFloat32: return ExpandKind::kInt4Float;
  }
  return ExpandKind::kInt4;
}

/// One matrix of `count` neighbouring experts.
ExpandMatrixArgs ExpansionOf(const PackedExperts& packed, const PackedMatrix& matrix, const std::byte* first_expert,
                             std::int64_t count) {
  ExpandMatrixArgs args;
  args.kind = KindOf(packed);
  args.values = first_expert + matrix.values;
  args.scales = first_expert + matrix.scales;
  args.matrices = count;
  args.matrix_bytes = packed.expert_bytes;
  args.rows = matrix.rows;
  args.columns = matrix.columns;
  args.row_bytes = matrix.row_bytes;
  args.stack_rows = matrix.rows / matrix.stacked;
  args.block_rows = packed.block_rows;
  args.block_columns = packed.block_columns;
  args.scale_columns = matrix.scale_columns;
  return args;
}

}  // namespace

DeviceExperts::DeviceExperts(const ModelConfig& config) : config_(config) {}

Status DeviceExperts::Reserve(std::int64_t rows) {
  if (rows <= rows_) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  rows_ = 0;  // until all are there
  const std::int64_t choices = rows * moe().top_k;
  const std::int64_t parts = moe().scoring == RouterScoring::kSigmoidBiased ? cuda::kMostParts : 1;
  DRAFTMILL_RETURN_IF_ERROR(logits_.Grow(rows * parts * moe().experts));
  DRAFTMILL_RETURN_IF_ERROR(chosen_.Grow(choices));
  DRAFTMILL_RETURN_IF_ERROR(weights_.Grow(choices));
  DRAFTMILL_RETURN_IF_ERROR(slots_.Grow(choices));
  DRAFTMILL_RETURN_IF_ERROR(scratch_.Grow(cuda::PlanSlotsScratch(rows, moe().experts)));
  DRAFTMILL_RETURN_IF_ERROR(expert_rows_.Grow(choices * config_.hidden_size));
  if (first_slot_.count() == 0) {
    DRAFTMILL_RETURN_IF_ERROR(first_slot_.Grow(moe().experts + 1));
    DRAFTMILL_ASSIGN_OR_RETURN(host_first_slot_, cuda::PinnedBuffer<std::int32_t>::Make(moe().experts + 1));
    DRAFTMILL_RETURN_IF_ERROR(row_ends_.Grow(moe().experts));
    DRAFTMILL_ASSIGN_OR_RETURN(host_row_ends_, cuda::PinnedBuffer<std::int32_t>::Make(moe().experts));
    DRAFTMILL_RETURN_IF_ERROR(ReadDevice());
    cudaEvent_t event = nullptr;
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate"));
    planned_.reset(event);
  }
  DRAFTMILL_RETURN_IF_ERROR(ReserveExpanded());
  rows_ = rows;
  return OkStatus();
}

Status DeviceExperts::ReadDevice() {
  int device = 0;
  int count = 0;
  DRAFTMILL_RETURN_IF_ERROR(Check(cudaGetDevice(&device), "cudaGetDevice"));
  DRAFTMILL_RETURN_IF_ERROR(
      Check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute"));
  multiprocessors_ = count;
  can_group_ = CanGroupProducts();
  return OkStatus();
}

Status DeviceExperts::ReserveExpanded() {
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const LayerLayout layout = LayoutOfLayer(config_, layer);
    if (layout.packed.method == QuantizationMethod::kNone) continue;
    return expanded_.Grow(kExpandedExperts * (layout.expert_gate_up_elements + layout.expert_down_elements));
  }
  return OkStatus();
}

Status DeviceExperts::Run(const MlpBranchArgs& args, DeviceGatedMlp& mlp, cudaStream_t stream) {
  DRAFTMILL_RETURN_IF_ERROR(Route(args, stream));
  DRAFTMILL_RETURN_IF_ERROR(PlanSlots(args.rows, stream));
  DRAFTMILL_RETURN_IF_ERROR(RunShared(args, mlp, stream));
  DRAFTMILL_RETURN_IF_ERROR(cuda::SpreadRows(
      {args.normed, slots_.data(), expert_rows_.data(), args.rows, moe().top_k, config_.hidden_size}, stream));
  DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventSynchronize(planned_.get()), "waiting for the experts' rows"));
  DRAFTMILL_RETURN_IF_ERROR(RunExperts(args.layer, mlp, stream));
  const bool shared = args.layer.layout->shared_gate_up >= 0;
  return cuda::JoinExperts(
      {expert_rows_.data(), slots_.data(), weights_.data(), shared ? args.out : nullptr, args.out, args.rows,
       moe().top_k, config_.hidden_size, moe().scoring != RouterScoring::kSigmoidBiased},
      stream);
}

// ---- router --------------------------------------------------------------------------------------------------------

/// Into how many bfloat16 numbers the router's weights must be cut to stay what they are.
Result<std::int64_t> DeviceExperts::CountParts(const DeviceLayer& layer) {
  if (moe().scoring != RouterScoring::kSigmoidBiased) return 1;  // rounded to bfloat16 as they were read
  const auto found = parts_of_routers_.find(layer.vectors);
  if (found != parts_of_routers_.end()) return found->second;
  std::vector<float> router(static_cast<std::size_t>(moe().experts * config_.hidden_size));
  DRAFTMILL_RETURN_IF_ERROR(Check(cudaMemcpy(router.data(), layer.Vector(layer.layout->router),
                                             router.size() * sizeof(float), cudaMemcpyDeviceToHost),
                                  "copy of a router"));
  const bool narrow =
      std::all_of(router.begin(), router.end(), [](float weight) { return RoundToBf16(weight) == weight; });
  return parts_of_routers_[layer.vectors] = narrow ? 1 : cuda::kMostParts;
}

Result<const Bf16*> DeviceExperts::RouterParts(const DeviceLayer& layer, std::int64_t& parts, cudaStream_t stream) {
  DRAFTMILL_ASSIGN_OR_RETURN(parts, CountParts(layer));
  if (parts == 1) return layer.Bias(layer.layout->router);
  const std::int64_t count = moe().experts * config_.hidden_size;
  DRAFTMILL_RETURN_IF_ERROR(router_parts_.Grow(parts * count));
  DRAFTMILL_RETURN_IF_ERROR(
      cuda::SplitFloats({layer.Vector(layer.layout->router), router_parts_.data(), count, parts}, stream));
  return router_parts_.data();
}

/// Logits are float32 sums of products of bfloat16 numbers, never rounded, so that ties are ties of the model.
Status DeviceExperts::Route(const MlpBranchArgs& args, cudaStream_t stream) {
  const LayerLayout& layout = *args.layer.layout;
  std::int64_t parts = 1;
  DRAFTMILL_ASSIGN_OR_RETURN(const Bf16* const router, RouterParts(args.layer, parts, stream));
  DeviceLinearToFloat({args.normed, router, logits_.data(), args.rows, config_.hidden_size, parts * moe().experts});
  cuda::RouteRowsArgs route;
  route.logits = logits_.data();
  route.logit_bias = args.layer.Vector(layout.router_bias);
  route.choice_bias = args.layer.Vector(layout.correction_bias);
  route.chosen = chosen_.data();
  route.weights = weights_.data();
  route.rows = args.rows;
  route.parts = parts;
  route.experts = moe().experts;
  route.top_k = moe().top_k;
  route.kind = KindOf(moe().scoring);
  route.groups = moe().groups;
  route.groups_kept = moe().groups_kept;
  route.renormalise = moe().renormalise;
  route.scaling = static_cast<float>(moe().scaling);
  route.rounds = moe().scoring != RouterScoring::kSigmoidBiased;
  return cuda::RouteRows(route, stream);
}

Status DeviceExperts::PlanSlots(std::int64_t rows, cudaStream_t stream) {
  DRAFTMILL_RETURN_IF_ERROR(cuda::PlanSlots(
      {chosen_.data(), slots_.data(), first_slot_.data(), scratch_.data(), rows, moe().top_k, moe().experts}, stream));
  DRAFTMILL_RETURN_IF_ERROR(
      cuda::CopyIntegers({first_slot_.data(), host_first_slot_.data(), moe().experts + 1}, stream));
  return Check(cudaEventRecord(planned_.get(), stream), "cudaEventRecord");
}

// ---- experts -------------------------------------------------------------------------------------------------------

Status DeviceExperts::RunShared(const MlpBranchArgs& args, DeviceGatedMlp& mlp, cudaStream_t stream) {
  const LayerLayout& layout = *args.layer.layout;
  if (layout.shared_gate_up < 0) return OkStatus();
  return mlp.Run({args.normed, args.out, args.rows, moe().shared_experts * moe().expert_intermediate,
                  args.layer.Matrix(layout.shared_gate_up), nullptr, args.layer.Matrix(layout.shared_down), nullptr},
                 stream);
}

Status DeviceExperts::RunExperts(const DeviceLayer& layer, DeviceGatedMlp& mlp, cudaStream_t stream) {
  const bool packed = layer.layout->packed.method != QuantizationMethod::kNone;
  const bool thin = AreThin(*layer.layout);
  if (thin) DRAFTMILL_RETURN_IF_ERROR(SendRowEnds(packed, stream));
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < moe().experts; first += count) {
    count = GroupAt(first, packed);
    if (RowsOf(first, count) == 0) continue;
    if (packed) DRAFTMILL_RETURN_IF_ERROR(Expand(layer, first, count, stream));
    if (thin && RowsOf(first, count) <= kMostPieceRows) {
      DRAFTMILL_RETURN_IF_ERROR(RunGroup(layer, first, count, mlp, stream));
      continue;
    }
    for (std::int64_t expert = first; expert < first + count; ++expert) {
      if (RowsOf(expert, 1) > 0) DRAFTMILL_RETURN_IF_ERROR(RunOne(layer, expert, mlp, stream));
    }
  }
  return OkStatus();
}

/// Whether the experts' rows of this block are better multiplied together. Grouped products know no biases.
bool DeviceExperts::AreThin(const LayerLayout& layout) const {
  const std::int64_t width = moe().expert_intermediate;
  if (!can_group_ || layout.experts_gate_up_bias >= 0 || layout.experts_down_bias >= 0) return false;
  if (config_.hidden_size % 8 != 0 || width % 8 != 0) return false;
  return FilledShare({host_first_slot_.data(), moe().experts, config_.hidden_size, width}, multiprocessors_) <
         kLeastFilledShare;
}

/// How many experts from `first` on are taken together: packed ones as many as are expanded at a time, others as many as
/// a piece has rows for.
std::int64_t DeviceExperts::GroupAt(std::int64_t first, bool packed) const {
  if (packed) return std::min(kExpandedExperts, moe().experts - first);
  std::int64_t count = 1;
  while (first + count < moe().experts && RowsOf(first, count + 1) <= kMostPieceRows) ++count;
  return count;
}

/// The host's copy was read by the GPU before this layer's rows were known to the host.
Status DeviceExperts::SendRowEnds(bool packed, cudaStream_t stream) {
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < moe().experts; first += count) {
    count = GroupAt(first, packed);
    for (std::int64_t i = 0; i < count; ++i) {
      host_row_ends_.data()[first + i] = static_cast<std::int32_t>(RowsOf(first, i + 1));
    }
  }
  return cuda::CopyIntegers({host_row_ends_.data(), row_ends_.data(), moe().experts}, stream);
}

Status DeviceExperts::RunGroup(const DeviceLayer& layer, std::int64_t first, std::int64_t count, DeviceGatedMlp& mlp,
                               cudaStream_t stream) {
  const LayerLayout& layout = *layer.layout;
  const Matrices matrices = MatricesOf(layer, first);
  DeviceGroupedMlpArgs args;
  args.rows = RowsAt(first);
  args.row_ends = row_ends_.data() + first;
  args.count = RowsOf(first, count);
  args.experts = count;
  args.width = moe().expert_intermediate;
  args.gate_up = matrices.gate_up;
  args.down = matrices.down;
  args.gate_up_distance = layout.expert_gate_up_elements;
  args.down_distance = layout.expert_down_elements;
  if (layout.packed.method != QuantizationMethod::kNone) {
    args.gate_up_distance = args.down_distance = layout.expert_gate_up_elements + layout.expert_down_elements;
  }
  return mlp.RunGrouped(args, stream);
}

Status DeviceExperts::RunOne(const DeviceLayer& layer, std::int64_t expert, DeviceGatedMlp& mlp, cudaStream_t stream) {
  const LayerLayout& layout = *layer.layout;
  const std::int64_t width = moe().expert_intermediate;
  const Bf16* const gate_up_bias = layer.Bias(layout.experts_gate_up_bias);
  const Bf16* const down_bias = layer.Bias(layout.experts_down_bias);
  const Matrices matrices = MatricesOf(layer, expert);
  return mlp.Run({RowsAt(expert), RowsAt(expert), RowsOf(expert, 1), width, matrices.gate_up,
                  gate_up_bias == nullptr ? nullptr : gate_up_bias + expert * 2 * width, matrices.down,
                  down_bias == nullptr ? nullptr : down_bias + expert * config_.hidden_size},
                 stream);
}

/// Experts `first` .. `first + count - 1` to their places in expanded_.
Status DeviceExperts::Expand(const DeviceLayer& layer, std::int64_t first, std::int64_t count, cudaStream_t stream) {
  const LayerLayout& layout = *layer.layout;
  const std::int64_t elements = layout.expert_gate_up_elements + layout.expert_down_elements;
  const std::byte* const bytes = layer.packed + first * layout.packed.expert_bytes;
  ExpandMatrixArgs gate_up = ExpansionOf(layout.packed, layout.packed.gate_up, bytes, count);
  gate_up.out = expanded_.data();
  gate_up.out_distance = elements;
  DRAFTMILL_RETURN_IF_ERROR(cuda::ExpandMatrix(gate_up, stream));
  ExpandMatrixArgs down = ExpansionOf(layout.packed, layout.packed.down, bytes, count);
  down.out = expanded_.data() + layout.expert_gate_up_elements;
  down.out_distance = elements;
  return cuda::ExpandMatrix(down, stream);
}

DeviceExperts::Matrices DeviceExperts::MatricesOf(const DeviceLayer& layer, std::int64_t expert) const {
  const LayerLayout& layout = *layer.layout;
  if (layout.packed.method == QuantizationMethod::kNone) {
    return {layer.Matrix(layout.experts_gate_up) + expert * layout.expert_gate_up_elements,
            layer.Matrix(layout.experts_down) + expert * layout.expert_down_elements};
  }
  const Bf16* const place =
      expanded_.data() + expert % kExpandedExperts * (layout.expert_gate_up_elements + layout.expert_down_elements);
  return {place, place + layout.expert_gate_up_elements};
}

}  // namespace draftmill

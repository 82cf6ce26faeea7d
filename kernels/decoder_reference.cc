// The arithmetic of decoder_cuda.cu in plain loops.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/decoder_cuda.h"

namespace draftmill::cuda::reference {
namespace {

float InverseRms(const float* x, std::int64_t count, float epsilon) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return 1.0F / std::sqrt(sum / static_cast<float>(count) + epsilon);
}

/// x * inverse * weight, rounded to bfloat16 as asked for.
float Normalised(float x, float inverse, float weight, NormRounding rounding) {
  const float value = rounding == NormRounding::kHf ? RoundToBf16(x * inverse) : x * inverse;
  return RoundToBf16(value * weight);
}

float Weight(const float* weight, std::int64_t i, bool one_plus) { return weight[i] + (one_plus ? 1.0F : 0.0F); }

float Activate(float gate, float up, const GateArgs& args) {
  switch (args.kind) {
    case GateKind::kSilu: return RoundToBf16(gate / (1.0F + std::exp(-gate))) * up;
    case GateKind::kGeluTanh: {
      const float inner = 0.7978845608028654F * (gate + 0.044715F * gate * gate * gate);
      return RoundToBf16(0.5F * gate * (1.0F + std::tanh(inner))) * up;
    }
    case GateKind::kClampedSwiglu: {
      const float bounded = std::min(gate, args.limit);
      const float glu = RoundToBf16(bounded * RoundToBf16(1.0F / (1.0F + std::exp(-RoundToBf16(bounded * 1.702F)))));
      return RoundToBf16(std::clamp(up, -args.limit, args.limit) + 1.0F) * glu;
    }
  }
  return 0;
}

void NormHead(float* head, const float* weight, const RotateHeadsArgs& args) {
  const float inverse = InverseRms(head, args.head_dim, args.epsilon);
  for (std::int64_t i = 0; i < args.head_dim; ++i) {
    head[i] = Normalised(head[i], inverse, Weight(weight, i, args.one_plus), args.norm_rounding);
  }
}

/// The leading 2 * half values; `cosines` and `sines` are those of the position.
void Rotate(float* head, std::int64_t half, const float* cosines, const float* sines, bool interleaved) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float cosine = cosines[i];
    const float sine = sines[i];
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const float a = first;
    const float b = second;
    first = RoundToBf16(RoundToBf16(a * cosine) - RoundToBf16(b * sine));
    second = RoundToBf16(RoundToBf16(b * cosine) + RoundToBf16(a * sine));
  }
}

}  // namespace

void EmbedRows(const EmbedRowsArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t i = 0; i < args.cols; ++i) {
      args.out[r * args.cols + i] = ToBf16(ToFloat(args.table[args.ids[r] * args.cols + i]) * args.scale);
    }
  }
}

void CopyIntegers(const CopyIntegersArgs& args) { std::copy_n(args.from, args.count, args.to); }

void AddNorm(const AddNormArgs& args) {
  std::vector<float> x(static_cast<std::size_t>(args.cols));
  std::vector<float> branch(x.size());
  for (std::int64_t r = 0; r < args.rows; ++r) {
    Bf16* residual = args.residual + r * (args.residual_stride == 0 ? args.cols : args.residual_stride);
    for (std::int64_t i = 0; i < args.cols; ++i) {
      x[static_cast<std::size_t>(i)] = ToFloat(residual[i]);
      branch[static_cast<std::size_t>(i)] = args.branch == nullptr ? 0.0F : ToFloat(args.branch[r * args.cols + i]);
    }
    const float branch_inverse =
        args.branch_weight == nullptr ? 1.0F : InverseRms(branch.data(), args.cols, args.epsilon);
    for (std::int64_t i = 0; i < args.cols && args.branch != nullptr; ++i) {
      float added = branch[static_cast<std::size_t>(i)];
      if (args.branch_weight != nullptr) {
        added = Normalised(added, branch_inverse, Weight(args.branch_weight, i, args.one_plus), args.rounding);
      }
      residual[i] = ToBf16(x[static_cast<std::size_t>(i)] + added);
      x[static_cast<std::size_t>(i)] = ToFloat(residual[i]);
    }
    if (args.capture != nullptr) std::copy_n(residual, args.cols, args.capture + r * args.capture_stride);
    if (args.out == nullptr) continue;
    const float inverse = InverseRms(x.data(), args.cols, args.epsilon);
    for (std::int64_t i = 0; i < args.cols; ++i) {
      args.out[r * args.cols + i] = ToBf16(
          Normalised(x[static_cast<std::size_t>(i)], inverse, Weight(args.weight, i, args.one_plus), args.rounding));
    }
  }
}

void RotateHeads(const RotateHeadsArgs& args) {
  std::vector<float> head(static_cast<std::size_t>(args.head_dim));
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t h = 0; h < args.q_heads + args.k_heads; ++h) {
      Bf16* stored = args.heads + r * args.row_stride + h * args.head_dim;
      std::transform(stored, stored + args.head_dim, head.begin(), ToFloat);
      const float* weight = h < args.q_heads ? args.q_norm : args.k_norm;
      if (weight != nullptr) NormHead(head.data(), weight, args);
      const std::int64_t half = args.rotary_dims / 2;
      Rotate(head.data(), half, args.cosines + args.positions[r] * half, args.sines + args.positions[r] * half,
             args.interleaved);
      std::transform(head.begin(), head.end(), stored, ToBf16);
    }
  }
}

void AssembleLatent(const AssembleLatentArgs& args) {
  const std::int64_t half = args.rope_dim / 2;
  const std::int64_t head_dim = args.nope_dim + args.rope_dim;
  std::vector<float> turned(static_cast<std::size_t>(args.rope_dim));
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const float* const cosines = args.cosines + args.positions[r] * half;
    const float* const sines = args.sines + args.positions[r] * half;
    const auto turn = [&](const Bf16* from, Bf16* to) {
      std::transform(from, from + args.rope_dim, turned.begin(), ToFloat);
      Rotate(turned.data(), half, cosines, sines, args.interleaved);
      std::transform(turned.begin(), turned.end(), to, ToBf16);
    };
    for (std::int64_t h = 0; h < args.heads; ++h) {
      Bf16* const q = args.q + (r * args.heads + h) * head_dim + args.nope_dim;
      Bf16* const k = args.k + (r * args.heads + h) * head_dim;
      turn(q, q);
      std::copy_n(args.kv + (r * args.heads + h) * (args.nope_dim + args.v_dim), args.nope_dim, k);
      turn(args.k_rope + r * args.k_rope_stride, k + args.nope_dim);
    }
  }
}

void Gate(const GateArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const Bf16* row = args.gate_up + r * 2 * args.width;
    for (std::int64_t i = 0; i < args.width; ++i) {
      args.out[r * args.width + i] = ToBf16(Activate(ToFloat(row[i]), ToFloat(row[args.width + i]), args));
    }
  }
}

void ApplySinks(const SinksArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t h = 0; h < args.heads; ++h) {
      const float factor = 1.0F / (1.0F + std::exp(args.sinks[h] - args.lse[h * args.rows + r]));
      Bf16* out = args.out + (r * args.heads + h) * args.head_dim;
      for (std::int64_t i = 0; i < args.head_dim; ++i) out[i] = ToBf16(ToFloat(out[i]) * factor);
    }
  }
}

void MarkNonFinite(const MarkNonFiniteArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const Bf16* row = args.values + r * args.cols;
    if (std::any_of(row, row + args.cols, [](Bf16 value) { return (value.bits & 0x7f80U) == 0x7f80U; })) {
      args.bad[args.owner[r]] = 1;
    }
  }
}

}  // namespace draftmill::cuda::reference

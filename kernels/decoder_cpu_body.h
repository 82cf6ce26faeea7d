// The loops of kernels/decoder_cpu.h. Included once by each decoder_cpu_<set>.cc, which is compiled for that instruction
// set and names the namespace; never included elsewhere. Uses no inline function of the standard library, because the
// linker might keep the copy that was compiled for another set.
//
// The compiler flags beside it matter: -O3 to vectorise, -ffp-contract=off so that every set rounds alike.
#if !defined(DRAFTMILL_KERNEL_NAMESPACE)
#error "name the namespace of this instruction set first"
#endif

#include "kernels/decoder_cpu.h"
#include "kernels/lanes_body.h"

namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE {
namespace {

// ---- RMSNorm -------------------------------------------------------------------------------------------------------

/// The sum of squares of values that come in pieces, all but the last of a multiple of 16.
class SumOfSquares {
 public:
  void Add(const float* x, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const Lanes a = LoadLanes(x + i);
      const Lanes b = LoadLanes(x + i + kLanes);
      first_ += a * a;
      second_ += b * b;
    }
    if (i == count) return;
    rest_ = SumLanes(first_ + second_);
    first_ = second_ = Lanes{0, 0, 0, 0, 0, 0, 0, 0};
    for (; i < count; ++i) rest_ += x[i] * x[i];
  }
  float Total() const { return SumLanes(first_ + second_) + rest_; }
  float InverseRms(std::int64_t count, float epsilon) const {
    return 1.0F / __builtin_sqrtf(Total() / static_cast<float>(count) + epsilon);
  }

 private:
  Lanes first_ = {0, 0, 0, 0, 0, 0, 0, 0};
  Lanes second_ = {0, 0, 0, 0, 0, 0, 0, 0};
  float rest_ = 0;
};

inline float InverseRms(const float* x, std::int64_t count, float epsilon) {
  SumOfSquares squares;
  squares.Add(x, count);
  return squares.InverseRms(count, epsilon);
}

template <NormRounding kRounding, typename T>
void NormRows(const RmsNormArgs<T>& args) {
  constexpr bool kRounds = kRounding != NormRounding::kNone;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const float* __restrict x = args.x + r * args.cols;
    const float* __restrict weight = args.weight;
    T* __restrict out = args.out + r * args.cols;
    const float inverse = InverseRms(x, args.cols, args.epsilon);
    for (std::int64_t i = 0; i < args.cols; ++i) {
      const float normalised = Rounded<kRounding == NormRounding::kHf>(x[i] * inverse);
      Store<kRounds>(normalised * (args.weight_offset + weight[i]), out[i]);
    }
  }
}

template <typename T>
void RmsNorm(const RmsNormArgs<T>& args) {
  switch (args.rounding) {
    case NormRounding::kNone: return NormRows<NormRounding::kNone>(args);
    case NormRounding::kHf: return NormRows<NormRounding::kHf>(args);
    case NormRounding::kFused: return NormRows<NormRounding::kFused>(args);
  }
}

template <bool kRounds, typename T>
inline void LoadValues(const T* __restrict from, float* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Load<kRounds>(from[i]);
}

template <bool kRounds, typename T>
inline void AddSquares(const T* x, std::int64_t count, SumOfSquares& squares) {
  constexpr std::int64_t kPiece = 256;
  float piece[kPiece];
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t length = count - begin < kPiece ? count - begin : kPiece;
    LoadValues<kRounds>(x + begin, piece, length);
    squares.Add(piece, length);
  }
}

template <NormRounding kRounding, typename T>
void NormProductRows(const ProductNormArgs<T>& args) {
  constexpr bool kRounds = kRounding != NormRounding::kNone;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const T* x = args.x + r * args.x_stride;
    T* out = args.out + r * args.cols;
    SumOfSquares squares;
    AddSquares<kRounds>(x, args.cols, squares);
    const float inverse = squares.InverseRms(args.cols, args.epsilon);
    for (std::int64_t i = 0; i < args.cols; ++i) {
      const float normalised = Rounded<kRounding == NormRounding::kHf>(Load<kRounds>(x[i]) * inverse);
      Store<kRounds>(normalised * (args.weight_offset + args.weight[i]), out[i]);
    }
  }
}

template <typename T>
void ProductNorm(const ProductNormArgs<T>& args) {
  switch (args.rounding) {
    case NormRounding::kNone: return NormProductRows<NormRounding::kNone>(args);
    case NormRounding::kHf: return NormProductRows<NormRounding::kHf>(args);
    case NormRounding::kFused: return NormProductRows<NormRounding::kFused>(args);
  }
}

// ---- split and rotate ----------------------------------------------------------------------------------------------

/// (a, b) -> (a cos - b sin, b cos + a sin), each product and each sum rounded as transformers rounds them.
template <bool kRounds>
inline void RotatePair(float a, float b, float cosine, float sine, float& first, float& second) {
  first = Rounded<kRounds>(Rounded<kRounds>(a * cosine) - Rounded<kRounds>(b * sine));
  second = Rounded<kRounds>(Rounded<kRounds>(b * cosine) + Rounded<kRounds>(a * sine));
}

/// Pairs (i, i + half) of a head, in place.
template <bool kRounds>
inline void RotateHead(float* __restrict head, const float* __restrict cosines, const float* __restrict sines,
                       std::int64_t half) {
  float* __restrict upper = head + half;
  for (std::int64_t i = 0; i < half; ++i) {
    RotatePair<kRounds>(head[i], upper[i], cosines[i], sines[i], head[i], upper[i]);
  }
}

/// Pairs (2 i, 2 i + 1) of a product's columns, stored as (i, i + half): a permutation that products of q and k do not see.
template <bool kRounds, typename T>
inline void RotateInterleaved(const T* __restrict from, const float* __restrict cosines, const float* __restrict sines,
                              std::int64_t half, float* __restrict to) {
  for (std::int64_t i = 0; i < half; ++i) {
    RotatePair<kRounds>(Load<kRounds>(from[2 * i]), Load<kRounds>(from[2 * i + 1]), cosines[i], sines[i], to[i],
                        to[half + i]);
  }
}

/// RMSNorm of one head in place.
template <bool kRounds, bool kRoundsTwice>
inline void NormHead(float* __restrict head, const float* __restrict weight, float offset, std::int64_t head_dim,
                     float epsilon) {
  const float inverse = InverseRms(head, head_dim, epsilon);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    head[i] = Rounded<kRounds>(Rounded<kRoundsTwice>(head[i] * inverse) * (offset + weight[i]));
  }
}

template <bool kRounds, typename T>
inline void NormHeadAsAsked(float* head, const float* weight, const SplitRotateArgs<T>& args) {
  if (weight == nullptr) return;
  if (args.norm_rounding == NormRounding::kHf) {
    return NormHead<kRounds, kRounds>(head, weight, args.norm_weight_offset, args.head_dim, args.epsilon);
  }
  NormHead<kRounds, false>(head, weight, args.norm_weight_offset, args.head_dim, args.epsilon);
}

template <bool kRounds, typename T>
void SplitRotateRows(const SplitRotateArgs<T>& args) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t width = (args.heads + 2 * args.kv_heads) * args.head_dim;
  const std::int64_t half = args.rotary_dims / 2;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const T* row = args.qkv + r * width;
    const float* cosines = args.cosines + args.rotary_rows[r] * half;
    const float* sines = args.sines + args.rotary_rows[r] * half;
    for (std::int64_t kv = 0; kv < args.kv_heads; ++kv) {
      const std::int64_t place = kv * args.tokens + r;
      for (std::int64_t g = 0; g < group; ++g) {
        float* q = args.q + (place * group + g) * args.head_dim;
        LoadValues<kRounds>(row + (kv * group + g) * args.head_dim, q, args.head_dim);
        NormHeadAsAsked<kRounds>(q, args.q_norm, args);
        RotateHead<kRounds>(q, cosines, sines, half);
      }
      float* k = args.k + place * args.head_dim;
      LoadValues<kRounds>(row + (args.heads + kv) * args.head_dim, k, args.head_dim);
      NormHeadAsAsked<kRounds>(k, args.k_norm, args);
      RotateHead<kRounds>(k, cosines, sines, half);
      LoadValues<kRounds>(row + (args.heads + args.kv_heads + kv) * args.head_dim, args.v + place * args.head_dim,
                          args.head_dim);
    }
  }
}

template <typename T>
void SplitRotate(const SplitRotateArgs<T>& args) {
  return args.rounds ? SplitRotateRows<true>(args) : SplitRotateRows<false>(args);
}

template <bool kRounds, typename T>
inline void RotateLatent(const LatentSplitArgs<T>& args, std::int64_t row, const T* from, float* to) {
  const std::int64_t half = args.rope_dim / 2;
  const float* cosines = args.cosines + args.rotary_rows[row] * half;
  const float* sines = args.sines + args.rotary_rows[row] * half;
  if (args.interleaved) return RotateInterleaved<kRounds>(from, cosines, sines, half, to);
  LoadValues<kRounds>(from, to, args.rope_dim);
  RotateHead<kRounds>(to, cosines, sines, half);
}

template <bool kRounds, typename T>
void LatentSplitRows(const LatentSplitArgs<T>& args) {
  const std::int64_t head_dim = args.nope_dim + args.rope_dim;
  const std::int64_t kv_dim = args.nope_dim + args.v_dim;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    float* shared = args.k + r * head_dim + args.nope_dim;  // the first head's; the others copy it
    RotateLatent<kRounds>(args, r, args.k_rope + r * args.k_rope_stride, shared);
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const T* q_row = args.q_rows + (r * args.heads + head) * head_dim;
      const T* kv_row = args.kv_rows + (r * args.heads + head) * kv_dim;
      const std::int64_t place = head * args.tokens + r;
      float* q = args.q + place * head_dim;
      float* k = args.k + place * head_dim;
      LoadValues<kRounds>(q_row, q, args.nope_dim);
      RotateLatent<kRounds>(args, r, q_row + args.nope_dim, q + args.nope_dim);
      LoadValues<kRounds>(kv_row, k, args.nope_dim);
      if (head > 0)
        __builtin_memcpy(k + args.nope_dim, shared, static_cast<std::size_t>(args.rope_dim) * sizeof(float));
      LoadValues<kRounds>(kv_row + args.nope_dim, args.v + place * args.v_dim, args.v_dim);
    }
  }
}

template <typename T>
void LatentSplit(const LatentSplitArgs<T>& args) {
  return args.rounds ? LatentSplitRows<true>(args) : LatentSplitRows<false>(args);
}

// ---- attention -----------------------------------------------------------------------------------------------------

inline float RowMaximum(const float* row, std::int64_t count, float start) {
  Lanes largest = {start, start, start, start, start, start, start, start};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes next = LoadLanes(row + i);
    largest = next > largest ? next : largest;
  }
  float maximum = start;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) maximum = largest[lane] > maximum ? largest[lane] : maximum;
  for (; i < count; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  return maximum;
}

inline float RowSum(const float* row, std::int64_t count) {
  Lanes total = {0, 0, 0, 0, 0, 0, 0, 0};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) total += LoadLanes(row + i);
  float sum = SumLanes(total);
  for (; i < count; ++i) sum += row[i];
  return sum;
}

/// Keys [begin, end) of the block that a query sees.
inline void VisibleKeys(const SoftmaxArgs& args, std::int64_t query, std::int64_t& begin, std::int64_t& end) {
  const std::int64_t oldest = args.window > 0 && query - args.window + 1 > 0 ? query - args.window + 1 : 0;
  begin = oldest > args.first_key ? oldest - args.first_key : 0;
  end = query + 1 - args.first_key;
  if (end > args.keys) end = args.keys;
  if (begin > args.keys) begin = args.keys;
  if (end < begin) end = begin;
}

inline void CapScores(float* __restrict row, std::int64_t count, float scale, float cap) {
  for (std::int64_t i = 0; i < count; ++i) row[i] = cap * Tanh(row[i] * scale / cap);
}

void SoftmaxBlock(const SoftmaxArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    float* __restrict row = args.scores + r * args.keys;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    VisibleKeys(args, args.first_query + r / args.group, begin, end);
    for (std::int64_t i = 0; i < begin; ++i) row[i] = 0.0F;
    for (std::int64_t i = end; i < args.keys; ++i) row[i] = 0.0F;
    args.rescale[r] = 1.0F;
    if (begin == end) continue;
    if (args.softcap > 0.0F) CapScores(row + begin, end - begin, args.scale, args.softcap);
    const float scale = args.softcap > 0.0F ? 1.0F : args.scale;
    const float before = args.maximum[r];
    const float here = RowMaximum(row + begin, end - begin, row[begin]) * scale;
    const float maximum = here > before ? here : before;
    for (std::int64_t i = begin; i < end; ++i) row[i] = Exp(row[i] * scale - maximum);
    args.rescale[r] = Exp(before - maximum);
    args.maximum[r] = maximum;
    args.sum[r] = args.sum[r] * args.rescale[r] + RowSum(row + begin, end - begin);
  }
}

void ScaleRows(float* values, const float* factors, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < cols; ++i) values[r * cols + i] *= factors[r];
  }
}

template <bool kRounds, typename T>
void StoreHeadRows(const StoreHeadsArgs<T>& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const float* __restrict from = args.values + r * args.head_dim;
    T* __restrict to = args.out + (r / args.group) * args.out_stride + (r % args.group) * args.head_dim;
    const float inverse = 1.0F / args.sum[r];
    for (std::int64_t i = 0; i < args.head_dim; ++i) Store<kRounds>(from[i] * inverse, to[i]);
  }
}

template <typename T>
void StoreHeads(const StoreHeadsArgs<T>& args) {
  return args.rounds ? StoreHeadRows<true>(args) : StoreHeadRows<false>(args);
}

// ---- MLP and residual ----------------------------------------------------------------------------------------------

/// One element of a gated MLP, rounded where transformers' modules round.
template <GateKind kKind, bool kRounds>
inline float Gated(float gate, float up, float limit) {
  if constexpr (kKind == GateKind::kSilu) return Rounded<kRounds>(gate / (1.0F + Exp(-gate))) * up;
  if constexpr (kKind == GateKind::kGeluTanh) {
    const float inner = 0.7978845608028654F * (gate + 0.044715F * (gate * gate * gate));
    return Rounded<kRounds>(0.5F * gate * (1.0F + Tanh(inner))) * up;
  }
  const float low = gate > limit ? limit : gate;
  const float high = up < -limit ? -limit : up;
  const float clamped = high > limit ? limit : high;
  const float sigmoid = Rounded<kRounds>(Sigmoid(Rounded<kRounds>(low * 1.702F)));
  return Rounded<kRounds>(clamped + 1.0F) * Rounded<kRounds>(low * sigmoid);
}

template <GateKind kKind, bool kRounds, typename T>
void GateRows(const GateArgs<T>& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const T* __restrict gate = args.gate_up + r * 2 * args.width;
    const T* __restrict up = gate + args.width;
    T* __restrict out = args.out + r * args.width;
    for (std::int64_t i = 0; i < args.width; ++i) {
      Store<kRounds>(Gated<kKind, kRounds>(Load<kRounds>(gate[i]), Load<kRounds>(up[i]), args.limit), out[i]);
    }
  }
}

template <bool kRounds, typename T>
void GateRowsOfKind(const GateArgs<T>& args) {
  switch (args.kind) {
    case GateKind::kSilu: return GateRows<GateKind::kSilu, kRounds>(args);
    case GateKind::kGeluTanh: return GateRows<GateKind::kGeluTanh, kRounds>(args);
    case GateKind::kClampedSwiglu: return GateRows<GateKind::kClampedSwiglu, kRounds>(args);
  }
}

template <typename T>
void Gate(const GateArgs<T>& args) {
  return args.rounds ? GateRowsOfKind<true>(args) : GateRowsOfKind<false>(args);
}

template <bool kRounds, typename T>
void AddRows(const AddResidualArgs<T>& args) {
  float* __restrict residual = args.residual;
  const T* __restrict branch = args.branch;
  for (std::int64_t i = 0; i < args.count; ++i) residual[i] += Load<kRounds>(branch[i]);
}

template <typename T>
void AddResidual(const AddResidualArgs<T>& args) {
  return args.rounds ? AddRows<true>(args) : AddRows<false>(args);
}

template <bool kRounds>
void ScaleValuesOf(float* __restrict values, float factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = Rounded<kRounds>(values[i] * factor);
}

void ScaleValues(float* values, float factor, std::int64_t count, bool rounds) {
  return rounds ? ScaleValuesOf<true>(values, factor, count) : ScaleValuesOf<false>(values, factor, count);
}

// ---- conversions ---------------------------------------------------------------------------------------------------

void Capture(const CaptureArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const float* __restrict from = args.residual + r * args.cols;
    Bf16* __restrict to = args.out + r * args.out_stride;
    for (std::int64_t i = 0; i < args.cols; ++i) Store<true>(from[i], to[i]);
  }
}

void Widen(const Bf16* __restrict in, float* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = Load<true>(in[i]);
}

template <typename T>
float Norm(const T* values, std::int64_t count) {
  SumOfSquares squares;
  AddSquares<false>(values, count, squares);
  return __builtin_sqrtf(squares.Total());
}

bool AllFinite(const Bf16* values, std::int64_t count) {
  std::uint16_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    bad = static_cast<std::uint16_t>(bad | static_cast<std::uint16_t>((values[i].bits & 0x7f80U) == 0x7f80U));
  }
  return bad == 0;
}

template <typename T>
constexpr DecoderKernels<T> Table() {
  return {RmsNorm<T>,   ProductNorm<T>, SplitRotate<T>, LatentSplit<T>, StoreHeads<T>, Gate<T>, AddResidual<T>,
          SoftmaxBlock, ScaleRows,      ScaleValues,    Capture,        Widen,         Norm<T>, AllFinite};
}

}  // namespace

extern const DecoderKernels<float> kFloatKernels;
extern const DecoderKernels<Bf16> kBf16Kernels;
constinit const DecoderKernels<float> kFloatKernels = Table<float>();
constinit const DecoderKernels<Bf16> kBf16Kernels = Table<Bf16>();

}  // namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE

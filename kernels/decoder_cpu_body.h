// The loops of kernels/decoder_cpu.h. Included once by each decoder_cpu_<set>.cc, which is compiled for that instruction
// set and names the namespace; never included elsewhere. Uses no inline function of the standard library, because the
// linker might keep the copy that was compiled for another set.
//
// The compiler flags beside it matter: -O3 to vectorise, -ffp-contract=off so that every set rounds alike.
#if !defined(DRAFTMILL_KERNEL_NAMESPACE)
#error "name the namespace of this instruction set first"
#endif

#include "kernels/decoder_cpu.h"

namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE {
namespace {

/// Eight floats: one AVX register. Sums run in these lanes on every machine.
using Lanes = float __attribute__((vector_size(32)));
constexpr std::int64_t kLanes = 8;

inline Lanes LoadLanes(const float* from) {
  Lanes lanes;
  __builtin_memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

inline float SumLanes(Lanes lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

inline float BitsToFloat(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

inline std::uint32_t FloatToBits(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// As ToBf16, without a branch.
inline std::uint32_t RoundedBits(float value) {
  const std::uint32_t bits = FloatToBits(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return ((bits & 0x7fffffffU) > 0x7f800000U ? (bits | 0x400000U) : rounded) & 0xffff0000U;
}

template <bool kRounds>
inline float Rounded(float value) {
  return kRounds ? BitsToFloat(RoundedBits(value)) : value;
}

/// Reads an operand of a product as the model has it: a float that stands for a bfloat16 is rounded when it is read.
template <bool kRounds>
inline float Load(float value) {
  return Rounded<kRounds>(value);
}
template <bool kRounds>
inline float Load(Bf16 value) {
  return BitsToFloat(static_cast<std::uint32_t>(value.bits) << 16);
}

template <bool kRounds>
inline void Store(float value, float& out) {
  out = Rounded<kRounds>(value);
}
template <bool kRounds>
inline void Store(float value, Bf16& out) {
  out.bits = static_cast<std::uint16_t>(RoundedBits(value) >> 16);
}

/// e^x to about one unit in the last place (Cephes' expf: reduction by ln 2 in two parts, polynomial of degree 6).
inline float Exp(float x) {
  const float low = x < -87.0F ? -87.0F : x;
  const float bounded = low > 88.0F ? 88.0F : low;
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const float whole = (bounded * 1.44269504088896341F + kMagic) - kMagic;
  const float rest = (bounded - whole * 0.693359375F) - whole * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * rest + 1.3981999507e-3F;
  p = p * rest + 8.3334519073e-3F;
  p = p * rest + 4.1665795894e-2F;
  p = p * rest + 1.6666665459e-1F;
  p = p * rest + 5.0000001201e-1F;
  p = (p * rest * rest + rest) + 1.0F;
  const auto exponent = static_cast<std::int32_t>(whole);
  const float result = BitsToFloat(FloatToBits(p) + (static_cast<std::uint32_t>(exponent) << 23));
  return x != x ? x : result;
}

// ---- RMSNorm -------------------------------------------------------------------------------------------------------

inline float InverseRms(const float* x, std::int64_t count, float epsilon) {
  Lanes first = {0, 0, 0, 0, 0, 0, 0, 0};
  Lanes second = first;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const Lanes a = LoadLanes(x + i);
    const Lanes b = LoadLanes(x + i + kLanes);
    first += a * a;
    second += b * b;
  }
  float sum = SumLanes(first + second);
  for (; i < count; ++i) sum += x[i] * x[i];
  return 1.0F / __builtin_sqrtf(sum / static_cast<float>(count) + epsilon);
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
      Store<kRounds>(normalised * weight[i], out[i]);
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

// ---- split and rotate ----------------------------------------------------------------------------------------------

template <bool kRounds, typename T>
inline void LoadHead(const T* __restrict from, float* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Load<kRounds>(from[i]);
}

/// (a, b) -> (a cos - b sin, b cos + a sin), each product and each sum rounded as transformers rounds them.
template <bool kRounds>
inline void RotateHead(float* __restrict head, const float* __restrict cosines, const float* __restrict sines,
                       std::int64_t half) {
  float* __restrict upper = head + half;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = upper[i];
    head[i] = Rounded<kRounds>(Rounded<kRounds>(a * cosines[i]) - Rounded<kRounds>(b * sines[i]));
    upper[i] = Rounded<kRounds>(Rounded<kRounds>(b * cosines[i]) + Rounded<kRounds>(a * sines[i]));
  }
}

/// RMSNorm of one head in place.
template <bool kRounds, bool kRoundsTwice>
inline void NormHead(float* __restrict head, const float* __restrict weight, std::int64_t head_dim, float epsilon) {
  const float inverse = InverseRms(head, head_dim, epsilon);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    head[i] = Rounded<kRounds>(Rounded<kRoundsTwice>(head[i] * inverse) * weight[i]);
  }
}

template <bool kRounds, typename T>
inline void NormHeadAsAsked(float* head, const float* weight, const SplitRotateArgs<T>& args) {
  if (weight == nullptr) return;
  if (args.norm_rounding == NormRounding::kHf) return NormHead<kRounds, kRounds>(head, weight, args.head_dim, args.epsilon);
  NormHead<kRounds, false>(head, weight, args.head_dim, args.epsilon);
}

template <bool kRounds, typename T>
void SplitRotateRows(const SplitRotateArgs<T>& args) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t width = (args.heads + 2 * args.kv_heads) * args.head_dim;
  const std::int64_t half = args.rotary_dims / 2;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const T* row = args.qkv + r * width;
    const float* cosines = args.cosines + args.positions[r] * half;
    const float* sines = args.sines + args.positions[r] * half;
    for (std::int64_t kv = 0; kv < args.kv_heads; ++kv) {
      const std::int64_t place = kv * args.tokens + r;
      for (std::int64_t g = 0; g < group; ++g) {
        float* q = args.q + (place * group + g) * args.head_dim;
        LoadHead<kRounds>(row + (kv * group + g) * args.head_dim, q, args.head_dim);
        NormHeadAsAsked<kRounds>(q, args.q_norm, args);
        RotateHead<kRounds>(q, cosines, sines, half);
      }
      float* k = args.k + place * args.head_dim;
      LoadHead<kRounds>(row + (args.heads + kv) * args.head_dim, k, args.head_dim);
      NormHeadAsAsked<kRounds>(k, args.k_norm, args);
      RotateHead<kRounds>(k, cosines, sines, half);
      LoadHead<kRounds>(row + (args.heads + args.kv_heads + kv) * args.head_dim, args.v + place * args.head_dim,
                        args.head_dim);
    }
  }
}

template <typename T>
void SplitRotate(const SplitRotateArgs<T>& args) {
  return args.rounds ? SplitRotateRows<true>(args) : SplitRotateRows<false>(args);
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
    const float scale = args.scale;
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

template <bool kRounds, typename T>
void SiluMulRows(const SiluMulArgs<T>& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const T* __restrict gate = args.gate_up + r * 2 * args.width;
    const T* __restrict up = gate + args.width;
    T* __restrict out = args.out + r * args.width;
    for (std::int64_t i = 0; i < args.width; ++i) {
      const float g = Load<kRounds>(gate[i]);
      const float activated = Rounded<kRounds>(g / (1.0F + Exp(-g)));
      Store<kRounds>(activated * Load<kRounds>(up[i]), out[i]);
    }
  }
}

template <typename T>
void SiluMul(const SiluMulArgs<T>& args) {
  return args.rounds ? SiluMulRows<true>(args) : SiluMulRows<false>(args);
}

template <bool kRounds, typename T>
void AddRows(const AddResidualArgs<T>& args) {
  float* __restrict residual = args.residual;
  const T* __restrict branch = args.branch;
  for (std::int64_t i = 0; i < args.count; ++i) {
    residual[i] = Rounded<kRounds>(residual[i] + Load<kRounds>(branch[i]));
  }
}

template <typename T>
void AddResidual(const AddResidualArgs<T>& args) {
  return args.rounds ? AddRows<true>(args) : AddRows<false>(args);
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

bool AllFinite(const Bf16* values, std::int64_t count) {
  std::uint16_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    bad = static_cast<std::uint16_t>(bad | static_cast<std::uint16_t>((values[i].bits & 0x7f80U) == 0x7f80U));
  }
  return bad == 0;
}

template <typename T>
constexpr DecoderKernels<T> Table() {
  return {RmsNorm<T>, SplitRotate<T>, StoreHeads<T>, SiluMul<T>, AddResidual<T>, SoftmaxBlock, ScaleRows, Capture, Widen, AllFinite};
}

}  // namespace

extern const DecoderKernels<float> kFloatKernels;
extern const DecoderKernels<Bf16> kBf16Kernels;
constinit const DecoderKernels<float> kFloatKernels = Table<float>();
constinit const DecoderKernels<Bf16> kBf16Kernels = Table<Bf16>();

}  // namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE

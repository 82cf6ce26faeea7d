#include "stages/extract/weight_store.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "stages/extract/worker_arena.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

void Assign(float value, float& out) { out = value; }
void Assign(float value, Bf16& out) { out = ToBf16(value); }

/// Converts stored elements. A stored BF16 becomes Bf16 bit for bit.
template <typename T>
void Convert(safetensors::Dtype dtype, const std::byte* in, T* out, std::int64_t count) {
  if (dtype == safetensors::Dtype::kF32) {
    for (std::int64_t i = 0; i < count; ++i) {
      float value = 0;
      std::memcpy(&value, in + i * 4, 4);
      Assign(value, out[i]);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in + i * 2, 2);
    Assign(dtype == safetensors::Dtype::kF16 ? HalfToFloat(bits) : ToFloat(Bf16{bits}), out[i]);
  }
}

/// One tensor and where it goes.
template <typename T>
struct Destination {
  const TensorPlace* place = nullptr;
  T* out = nullptr;
};

/// Reads tensors of open files into their places; safe from several threads.
class TensorReader {
 public:
  static Result<TensorReader> Open(const WeightsIndex& index) {
    TensorReader reader;
    for (const WeightsFile& file : index.files) {
      const std::string path = JoinPath(index.model_folder, file.name);
      DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> open, RealFileSystem().OpenForReading(path));
      DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t size, open->Size());
      if (size != file.size_bytes) return InvalidInput(path + ": its size changed after its header was read");
      reader.files_.push_back(std::move(open));
      reader.paths_.push_back(path);
    }
    return reader;
  }

  template <typename T>
  Status Read(const Destination<T>& destination, StreamingHash& hash) const {
    const safetensors::TensorInfo& info = destination.place->info;
    const auto file = static_cast<std::size_t>(destination.place->file);
    const std::int64_t element_bytes = safetensors::DtypeBits(info.dtype) / 8;
    std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPieceBytes, info.bytes)));
    for (std::int64_t done = 0; done < info.bytes;) {
      const auto want = static_cast<std::size_t>(std::min<std::int64_t>(kPieceBytes, info.bytes - done));
      const std::span<std::byte> bytes = std::span(piece).first(want);
      DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t got, files_[file]->ReadAt(info.offset + done, bytes));
      if (got != want) return InvalidInput(paths_[file] + ": ends inside the tensor " + info.name + "; the file was cut short");
      hash.Update(std::span<const std::byte>(bytes));
      Convert(info.dtype, bytes.data(), destination.out + done / element_bytes, static_cast<std::int64_t>(want) / element_bytes);
      done += static_cast<std::int64_t>(want);
    }
    return OkStatus();
  }

 private:
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::vector<std::string> paths_;
};

/// The tensors of one layer in the order of its digest.
template <typename T>
std::vector<Destination<T>> LayerDestinations(const ModelConfig& config, const CheckpointTensors& tensors,
                                              const LayerLayout& layout, std::int64_t layer, T* block) {
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  std::vector<Destination<T>> destinations;
  const auto add = [&](const std::string& name, std::int64_t offset) {
    destinations.push_back({&tensors.Get(prefix + name), block + offset});
  };
  const auto add_linear = [&](const std::string& name, std::int64_t weight, std::int64_t bias, std::int64_t first_row,
                              std::int64_t inputs) {
    add(name + ".weight", weight + first_row * inputs);
    if (bias >= 0) add(name + ".bias", bias + first_row);
  };
  add("input_layernorm.weight", layout.input_norm);
  add("post_attention_layernorm.weight", layout.post_norm);
  if (config.qk_norm) {
    add("self_attn.q_norm.weight", layout.q_norm);
    add("self_attn.k_norm.weight", layout.k_norm);
  }
  add_linear("self_attn.q_proj", layout.qkv, layout.qkv_bias, 0, config.hidden_size);
  add_linear("self_attn.k_proj", layout.qkv, layout.qkv_bias, config.q_width(), config.hidden_size);
  add_linear("self_attn.v_proj", layout.qkv, layout.qkv_bias, config.q_width() + config.kv_width(), config.hidden_size);
  add_linear("self_attn.o_proj", layout.o, layout.o_bias, 0, config.q_width());
  add_linear("mlp.gate_proj", layout.gate_up, layout.gate_up_bias, 0, config.hidden_size);
  add_linear("mlp.up_proj", layout.gate_up, layout.gate_up_bias, config.intermediate_size, config.hidden_size);
  add_linear("mlp.down_proj", layout.down, layout.down_bias, 0, config.intermediate_size);
  return destinations;
}

template <typename T>
Result<Hash128> ReadPart(const TensorReader& reader, const std::vector<Destination<T>>& destinations) {
  StreamingHash hash;
  for (const Destination<T>& destination : destinations) {
    DRAFTMILL_RETURN_IF_ERROR(reader.Read(destination, hash));
  }
  return hash.Digest128();
}

}  // namespace

template <typename T>
Result<WeightStore<T>> WeightStore<T>::Load(const ModelConfig& config, const WeightsIndex& index,
                                            const CheckpointTensors& tensors, int threads) {
  DRAFTMILL_ASSIGN_OR_RETURN(const TensorReader reader, TensorReader::Open(index));
  WeightStore store;
  store.layout_ = LayoutOfLayers(config);
  store.embedding_ = AlignedBuffer<T>(config.vocab_size * config.hidden_size);
  AlignedBuffer<T> final_norm(config.hidden_size);
  std::vector<std::vector<Destination<T>>> parts;
  parts.push_back({{&tensors.Get("embed_tokens.weight"), store.embedding_.data()}});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    store.layers_.emplace_back(store.layout_.total);
    parts.push_back(LayerDestinations<T>(config, tensors, store.layout_, layer, store.layers_.back().data()));
  }
  parts.push_back({{&tensors.Get("norm.weight"), final_norm.data()}});
  std::vector<Hash128> digests(parts.size());
  std::vector<Status> statuses(parts.size());
  WorkerArena arena(threads);
  arena.ForEach(parts.size(), [&](std::size_t i) {
    const Result<Hash128> digest = ReadPart(reader, parts[i]);
    statuses[i] = digest.status();
    if (digest.ok()) digests[i] = *digest;
  });
  StreamingHash all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    DRAFTMILL_RETURN_IF_ERROR(statuses[i]);
    all.Update(std::as_bytes(std::span(digests[i].bytes)));
  }
  store.digest_ = ToHex(all.Digest128());
  return store;
}

template class WeightStore<float>;
template class WeightStore<Bf16>;

}  // namespace draftmill

#include "stages/extract/model/layer_tensors.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "stages/extract/model/model_family.h"

namespace draftmill {
namespace {

using Part = std::int64_t LayerLayout::*;

/// Collects a layer's tensors.
class Collector {
 public:
  explicit Collector(const ModelConfig& config) : config_(config), names_(config.family->names) {}

  void Norm(const std::string& name, std::int64_t width, Part part) { Vector(name + ".weight", {width}, part); }

  /// A linear layer whose rows begin at `first_row` of its part.
  void Linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, Part weight,
              std::int64_t first_row = 0, Part bias = nullptr) {
    Matrix(name + ".weight", {outputs, inputs}, weight).first = first_row * inputs;
    if (bias != nullptr) Vector(name + ".bias", {outputs}, bias).first = first_row;
  }

  /// gate, up and down of a gated MLP.
  void Mlp(const std::string& name, std::int64_t width, Part gate_up, Part down, Part gate_up_bias, Part down_bias) {
    const std::int64_t hidden = config_.hidden_size;
    Linear(name + ".gate_proj", width, hidden, gate_up, 0, gate_up_bias);
    Linear(name + ".up_proj", width, hidden, gate_up, width, gate_up_bias);
    Linear(name + ".down_proj", hidden, width, down, 0, down_bias);
  }

  void Norms() {
    const std::int64_t hidden = config_.hidden_size;
    Norm("input_layernorm", hidden, &LayerLayout::input_norm);
    if (!config_.sandwich_norms) return Norm("post_attention_layernorm", hidden, &LayerLayout::mlp_norm);
    Norm("post_attention_layernorm", hidden, &LayerLayout::attention_output_norm);
    Norm("pre_feedforward_layernorm", hidden, &LayerLayout::mlp_norm);
    Norm("post_feedforward_layernorm", hidden, &LayerLayout::mlp_output_norm);
  }

  void Attention() {
    if (config_.latent.has_value()) return LatentAttentionTensors(*config_.latent);
    const std::int64_t hidden = config_.hidden_size;
    if (config_.qk_norm) {
      Norm("self_attn.q_norm", config_.head_dim, &LayerLayout::q_norm);
      Norm("self_attn.k_norm", config_.head_dim, &LayerLayout::k_norm);
    }
    const Part bias = config_.qkv_bias ? &LayerLayout::qkv_bias : nullptr;
    if (config_.fused_qkv_in_checkpoint) {
      Linear("self_attn.qkv_proj", config_.qkv_width(), hidden, &LayerLayout::qkv, 0, bias);
    } else {
      const std::int64_t q = config_.q_width();
      const std::int64_t kv = config_.kv_width();
      Linear("self_attn.q_proj", q, hidden, &LayerLayout::qkv, 0, bias);
      Linear("self_attn.k_proj", kv, hidden, &LayerLayout::qkv, q, bias);
      Linear("self_attn.v_proj", kv, hidden, &LayerLayout::qkv, q + kv, bias);
    }
    if (config_.attention_sinks) Vector("self_attn.sinks", {config_.num_heads}, &LayerLayout::sinks);
    Linear("self_attn.o_proj", hidden, config_.q_width(), &LayerLayout::o, 0,
           config_.o_bias ? &LayerLayout::o_bias : nullptr);
  }

  void DenseMlp() {
    const std::int64_t width = config_.intermediate_size;
    const Part gate_up_bias = config_.mlp_bias ? &LayerLayout::gate_up_bias : nullptr;
    const Part down_bias = config_.mlp_bias ? &LayerLayout::down_bias : nullptr;
    if (!config_.fused_gate_up_in_checkpoint) {
      return Mlp("mlp", width, &LayerLayout::gate_up, &LayerLayout::down, gate_up_bias, down_bias);
    }
    Linear("mlp.gate_up_proj", 2 * width, config_.hidden_size, &LayerLayout::gate_up, 0, gate_up_bias);
    Linear("mlp.down_proj", config_.hidden_size, width, &LayerLayout::down, 0, down_bias);
  }

  void Experts(const MixtureOfExperts& moe) {
    const std::string router = names_.router;
    const bool sigmoid = moe.scoring == RouterScoring::kSigmoidBiased;
    // A vector, since every router multiplies in float32: the choice needs logits that are not rounded.
    Vector(router + ".weight", {moe.experts, config_.hidden_size}, &LayerLayout::router).keeps_float32 = sigmoid;
    if (moe.router_bias) Vector(router + ".bias", {moe.experts}, &LayerLayout::router_bias);
    if (sigmoid)
      Vector(router + ".e_score_correction_bias", {moe.experts}, &LayerLayout::correction_bias).keeps_float32 = true;
    if (moe.shared_experts > 0) {
      Mlp("mlp.shared_experts", moe.shared_experts * moe.expert_intermediate, &LayerLayout::shared_gate_up,
          &LayerLayout::shared_down, nullptr, nullptr);
    }
    if (names_.experts_in_one) return ExpertsInOne(moe);
    for (std::int64_t expert = 0; expert < moe.experts; ++expert) SingleExpert(moe, expert);
  }

  std::vector<LayerTensor> Take() { return std::move(tensors_); }

 private:
  LayerTensor& Vector(std::string name, std::vector<std::int64_t> shape, Part part) {
    tensors_.push_back({std::move(name), std::move(shape), part});
    return tensors_.back();
  }
  LayerTensor& Matrix(std::string name, std::vector<std::int64_t> shape, Part part) {
    LayerTensor& tensor = Vector(std::move(name), std::move(shape), part);
    tensor.is_matrix = true;
    return tensor;
  }

  void LatentAttentionTensors(const LatentAttention& latent) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = config_.num_heads;
    const std::int64_t q_width = heads * (latent.nope_dim + latent.rope_dim);
    if (latent.q_lora_rank > 0) {
      Norm("self_attn.q_a_layernorm", latent.q_lora_rank, &LayerLayout::q_a_norm);
      Linear("self_attn.q_a_proj", latent.q_lora_rank, hidden, &LayerLayout::q_a);
      Linear("self_attn.q_b_proj", q_width, latent.q_lora_rank, &LayerLayout::q_b);
    } else {
      Linear("self_attn.q_proj", q_width, hidden, &LayerLayout::q_b);
    }
    Norm("self_attn.kv_a_layernorm", latent.kv_lora_rank, &LayerLayout::kv_a_norm);
    Linear("self_attn.kv_a_proj_with_mqa", latent.kv_lora_rank + latent.rope_dim, hidden, &LayerLayout::kv_a);
    Linear("self_attn.kv_b_proj", heads * (latent.nope_dim + latent.v_dim), latent.kv_lora_rank, &LayerLayout::kv_b);
    Linear("self_attn.o_proj", hidden, heads * latent.v_dim, &LayerLayout::o);
  }

  void SingleExpert(const MixtureOfExperts& moe, std::int64_t expert) {
    const std::size_t first = tensors_.size();
    const std::int64_t elements = moe.expert_intermediate * config_.hidden_size;
    Mlp("mlp.experts." + std::to_string(expert), moe.expert_intermediate, &LayerLayout::experts_gate_up,
        &LayerLayout::experts_down, nullptr, nullptr);
    for (std::size_t i = first; i < tensors_.size(); ++i) {
      LayerTensor& tensor = tensors_[i];
      tensor.first += expert * (tensor.part == &LayerLayout::experts_down ? elements : 2 * elements);
      tensor.expert = expert;
      tensor.routed = true;
    }
  }

  /// gpt-oss: all experts in one tensor, [experts, inputs, outputs].
  void ExpertsInOne(const MixtureOfExperts& moe) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = moe.expert_intermediate;
    LayerTensor& gate_up =
        Matrix("mlp.experts.gate_up_proj", {moe.experts, hidden, 2 * width}, &LayerLayout::experts_gate_up);
    gate_up.order = TensorOrder::kPairedColumns;
    gate_up.routed = true;
    LayerTensor& down = Matrix("mlp.experts.down_proj", {moe.experts, width, hidden}, &LayerLayout::experts_down);
    down.order = TensorOrder::kTransposed;
    down.routed = true;
    if (!moe.expert_bias) return;
    Vector("mlp.experts.gate_up_proj_bias", {moe.experts, 2 * width}, &LayerLayout::experts_gate_up_bias).order =
        TensorOrder::kPairedRows;
    Vector("mlp.experts.down_proj_bias", {moe.experts, hidden}, &LayerLayout::experts_down_bias);
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  std::vector<LayerTensor> tensors_;
};

constexpr std::string_view kWeight = ".weight";

/// "self_attn.q_proj" of "self_attn.q_proj.weight".
std::string ModuleOf(const LayerTensor& tensor) {
  const bool is_weight = tensor.name.ends_with(kWeight);
  return is_weight ? tensor.name.substr(0, tensor.name.size() - kWeight.size()) : tensor.name;
}

/// "mlp.experts.0.up_proj" of "mlp.experts.17.up_proj.weight".
std::string FirstExpertModule(const LayerTensor& tensor) {
  constexpr std::string_view kExperts = "mlp.experts.";
  const std::string module = ModuleOf(tensor);
  return std::string(kExperts) + "0" + module.substr(module.find('.', kExperts.size()));
}

std::string LayerPrefix(std::int64_t layer) { return "layers." + std::to_string(layer) + "."; }

/// Matrices. Routers, which are none here, are plain in every published checkpoint, whatever the list of exceptions says.
bool IsQuantisable(const LayerTensor& tensor) { return tensor.is_matrix; }

std::int64_t Groups(std::int64_t columns, std::int64_t group) { return (columns + group - 1) / group; }

void MarkQuantised(const ModelConfig& config, std::int64_t layer, std::vector<LayerTensor>& tensors) {
  const Quantization& quantization = config.quantization;
  if (quantization.method == QuantizationMethod::kNone) return;
  for (LayerTensor& tensor : tensors) {
    if (!IsQuantisable(tensor)) continue;
    if (quantization.method == QuantizationMethod::kMxfp4) {
      tensor.quantised = tensor.routed;
      continue;
    }
    // One expert stands for all of its layer: packages quantise the experts of a layer alike.
    const std::string module = tensor.expert > 0 ? FirstExpertModule(tensor) : ModuleOf(tensor);
    tensor.quantised = quantization.kept.empty() || !quantization.kept.contains(LayerPrefix(layer) + module);
  }
  // Where the quantisation leaves some of the experts' matrices out, all are expanded while they are read.
  const bool packs = std::all_of(tensors.begin(), tensors.end(),
                                 [](const LayerTensor& tensor) { return !tensor.routed || tensor.quantised; });
  for (LayerTensor& tensor : tensors) tensor.stays_packed = packs && tensor.routed;
}

}  // namespace

std::int64_t LayerTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

bool LayerHasExperts(const ModelConfig& config, std::int64_t layer) {
  if (!config.experts.has_value()) return false;
  const auto& dense = config.experts->dense_layers;
  return std::find(dense.begin(), dense.end(), static_cast<std::int32_t>(layer)) == dense.end();
}

std::vector<LayerTensor> LayerTensors(const ModelConfig& config, std::int64_t layer) {
  Collector collector(config);
  collector.Norms();
  collector.Attention();
  if (LayerHasExperts(config, layer)) {
    collector.Experts(*config.experts);
  } else {
    collector.DenseMlp();
  }
  std::vector<LayerTensor> tensors = collector.Take();
  MarkQuantised(config, layer, tensors);
  return tensors;
}

std::vector<StoredTensor> StoredTensors(const Quantization& quantization, const LayerTensor& tensor) {
  if (!tensor.quantised) return {{tensor.name, tensor.shape, TensorRole::kPlain}};
  const std::string module = ModuleOf(tensor);
  const std::int64_t group = quantization.block_columns;
  switch (quantization.method) {
    case QuantizationMethod::kNone: break;
    case QuantizationMethod::kBlockFp8:
      return {{module + ".weight_scale_inv",
               {Groups(tensor.shape[0], quantization.block_rows), Groups(tensor.shape[1], group)},
               TensorRole::kFp8Scales},
              {tensor.name, tensor.shape, TensorRole::kFp8Values}};
    case QuantizationMethod::kPackedInt4:
      return {{module + ".weight_shape", {2}, TensorRole::kInt4Shape},
              {module + ".weight_scale", {tensor.shape[0], Groups(tensor.shape[1], group)}, TensorRole::kInt4Scales},
              {module + ".weight_packed", {tensor.shape[0], Groups(tensor.shape[1], 8)}, TensorRole::kInt4Values}};
    case QuantizationMethod::kMxfp4: {
      // All experts in one, [experts, inputs, outputs] as published; packed they are [experts, outputs, inputs].
      const std::int64_t experts = tensor.shape[0];
      const std::int64_t blocks = Groups(tensor.shape[1], group);
      const std::int64_t outputs = tensor.shape[2];
      return {{tensor.name + "_scales", {experts, outputs, blocks}, TensorRole::kMxfp4Scales},
              {tensor.name + "_blocks", {experts, outputs, blocks, group / 2}, TensorRole::kMxfp4Values}};
    }
  }
  return {{tensor.name, tensor.shape, TensorRole::kPlain}};
}

std::vector<std::string> QuantisableModules(const ModelConfig& config, std::int64_t layer) {
  std::vector<std::string> modules;
  for (const LayerTensor& tensor : LayerTensors(config, layer)) {
    if (IsQuantisable(tensor) && tensor.expert <= 0) modules.push_back(LayerPrefix(layer) + ModuleOf(tensor));
  }
  return modules;
}

}  // namespace draftmill

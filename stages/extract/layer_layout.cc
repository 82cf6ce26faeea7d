#include "stages/extract/layer_layout.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPartAlignment = 64;

}  // namespace

LayerLayout LayoutOfLayers(const ModelConfig& config) {
  LayerLayout layout;
  std::int64_t next = 0;
  const auto place = [&next](std::int64_t count) {
    const std::int64_t at = next;
    next += (count + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return at;
  };
  layout.input_norm = place(config.hidden_size);
  layout.post_norm = place(config.hidden_size);
  if (config.qk_norm) layout.q_norm = place(config.head_dim);
  if (config.qk_norm) layout.k_norm = place(config.head_dim);
  if (config.qkv_bias) layout.qkv_bias = place(config.qkv_width());
  if (config.o_bias) layout.o_bias = place(config.hidden_size);
  if (config.mlp_bias) layout.gate_up_bias = place(2 * config.intermediate_size);
  if (config.mlp_bias) layout.down_bias = place(config.hidden_size);
  layout.vectors_end = next;
  layout.qkv = place(config.qkv_width() * config.hidden_size);
  layout.o = place(config.hidden_size * config.q_width());
  layout.gate_up = place(2 * config.intermediate_size * config.hidden_size);
  layout.down = place(config.hidden_size * config.intermediate_size);
  layout.total = next;
  return layout;
}

}  // namespace draftmill

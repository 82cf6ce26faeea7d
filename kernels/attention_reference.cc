// Attention as its formula says, for tests.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/attention_cuda.h"

namespace draftmill::cuda::reference {
namespace {

/// One query of one head; tokens are counted from the start of the sequence.
void AttendQuery(const AttendArgs& args, std::int64_t start, std::int64_t query, std::int64_t head) {
  const std::int64_t kv_head = head / (args.heads / args.kv_heads);
  const Bf16* const q = args.q + (start + query) * args.q_token + head * args.q_head;
  const std::int64_t first = args.window > 0 ? std::max<std::int64_t>(0, query - args.window + 1) : 0;
  std::vector<double> weights;
  for (std::int64_t key = first; key <= query; ++key) {
    const Bf16* const k = args.k + (start + key) * args.k_token + kv_head * args.k_head;
    double logit = 0;
    for (std::int64_t d = 0; d < args.head_dim; ++d)
      logit += static_cast<double>(ToFloat(q[d])) * static_cast<double>(ToFloat(k[d]));
    logit *= static_cast<double>(args.scale);
    if (args.softcap > 0)
      logit = static_cast<double>(args.softcap) * std::tanh(logit / static_cast<double>(args.softcap));
    weights.push_back(logit);
  }
  double largest = *std::max_element(weights.begin(), weights.end());
  if (args.sinks != nullptr) largest = std::max(largest, static_cast<double>(args.sinks[head]));
  double sum = args.sinks == nullptr ? 0.0 : std::exp(static_cast<double>(args.sinks[head]) - largest);
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (std::int64_t d = 0; d < args.value_dim; ++d) {
    double value = 0;
    for (std::int64_t key = first; key <= query; ++key) {
      value += weights[static_cast<std::size_t>(key - first)] *
               static_cast<double>(ToFloat(args.v[(start + key) * args.v_token + kv_head * args.v_head + d]));
    }
    args.out[((start + query) * args.heads + head) * args.value_dim + d] = ToBf16(static_cast<float>(value / sum));
  }
}

}  // namespace

void Attend(const AttendArgs& args) {
  for (std::int64_t s = 0; s < args.sequences; ++s) {
    for (std::int64_t query = 0; query < args.starts[s + 1] - args.starts[s]; ++query) {
      for (std::int64_t head = 0; head < args.heads; ++head) AttendQuery(args, args.starts[s], query, head);
    }
  }
}

}  // namespace draftmill::cuda::reference

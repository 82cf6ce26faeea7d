// Attention through cuDNN's graph interface: ragged batches, one plan for each rounded shape.
#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

// The frontend's headers are not written for this project's warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#pragma GCC diagnostic pop

#include "kernels/cuda_check.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device/device_attention.h"

namespace draftmill {
namespace {

namespace fe = cudnn_frontend;

constexpr std::int64_t kLongestMultiple = 1024;

enum TensorId : std::int64_t { kQ = 1, kK, kV, kO, kLengths, kQOffsets, kKOffsets, kVOffsets, kOutOffsets };

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

Status CheckFrontend(fe::error_t error, const char* what) {
  if (error.is_good()) return OkStatus();
  return DeviceError(std::string("cuDNN: ") + what + ": " + error.get_message());
}
Status CheckCudnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return OkStatus();
  return DeviceError(std::string("cuDNN: ") + what + ": " + cudnnGetErrorString(status));
}

/// A plan for batches of up to `samples` sequences of up to `longest` tokens.
struct Plan {
  fe::graph::Graph graph;
  std::int64_t workspace_bytes = 0;
};

class CudnnAttention : public AttentionKernel {
 public:
  explicit CudnnAttention(const AttentionShape& shape) : shape_(shape) {}
  ~CudnnAttention() override {
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  Status Start() { return CheckCudnn(cudnnCreate(&handle_), "cudnnCreate"); }

  Status Run(const AttentionArgs& args, cudaStream_t stream) override {
    const DeviceSequences& sequences = args.sequences;
    const std::int64_t widest = std::max({shape_.q.token, shape_.k.token, shape_.v.token, shape_.out_width()});
    if (sequences.tokens * widest > std::numeric_limits<std::int32_t>::max()) {
      return Internal("a batch of " + std::to_string(sequences.tokens) +
                      " tokens is beyond attention's 32-bit offsets");
    }
    DRAFTMILL_ASSIGN_OR_RETURN(Plan * plan, PlanFor(RoundUp(sequences.samples, kSampleMultiple),
                                                    RoundUp(sequences.longest, kLongestMultiple)));
    DRAFTMILL_RETURN_IF_ERROR(workspace_.Grow(plan->workspace_bytes));
    DRAFTMILL_RETURN_IF_ERROR(CheckCudnn(cudnnSetStream(handle_, stream), "cudnnSetStream"));
    // The frontend takes all tensors as void*.
    const auto values = [](const Bf16* data) { return static_cast<void*>(const_cast<Bf16*>(data)); };  // NOLINT
    const auto index = [](const std::int32_t* data) {
      return static_cast<void*>(const_cast<std::int32_t*>(data));
    };  // NOLINT
    std::unordered_map<std::int64_t, void*> tensors = {{kQ, values(args.q)},
                                                       {kK, values(args.k)},
                                                       {kV, values(args.v)},
                                                       {kO, args.out},
                                                       {kLengths, index(sequences.lengths)},
                                                       {kQOffsets, index(sequences.q_offsets)},
                                                       {kKOffsets, index(sequences.k_offsets)},
                                                       {kVOffsets, index(sequences.v_offsets)},
                                                       {kOutOffsets, index(sequences.out_offsets)}};
    return CheckFrontend(plan->graph.execute(handle_, tensors, workspace_.data()), "attention");
  }

 private:
  Result<Plan*> PlanFor(std::int64_t samples, std::int64_t longest) {
    std::unique_ptr<Plan>& plan = plans_[{samples, longest}];
    if (plan) return plan.get();
    auto made = std::make_unique<Plan>();
    DRAFTMILL_RETURN_IF_ERROR(Build(samples, longest, *made));
    plan = std::move(made);
    return plan.get();
  }

  Status Build(std::int64_t samples, std::int64_t longest, Plan& plan) const {
    fe::graph::Graph& graph = plan.graph;
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto indices = [&](const char* name, TensorId id, std::int64_t count) {
      return graph.tensor(fe::graph::Tensor_attributes()
                              .set_name(name)
                              .set_uid(id)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(fe::DataType_t::INT32));
    };
    const auto lengths = indices("lengths", kLengths, samples);
    const auto out_offsets = indices("out_offsets", kOutOffsets, samples + 1);
    const auto heads = [&](const char* name, TensorId id, TensorId offsets, std::int64_t count, std::int64_t dim,
                           const HeadStrides& strides) {
      return graph.tensor(
          fe::graph::Tensor_attributes()
              .set_name(name)
              .set_uid(id)
              .set_dim({samples, count, longest, dim})
              .set_stride({longest * strides.token, strides.head, strides.token, 1})
              .set_ragged_offset(indices((std::string(name) + "_offsets").c_str(), offsets, samples + 1)));
    };
    auto [out, stats] = graph.sdpa(heads("q", kQ, kQOffsets, shape_.heads, shape_.head_dim, shape_.q),
                                   heads("k", kK, kKOffsets, shape_.kv_heads, shape_.head_dim, shape_.k),
                                   heads("v", kV, kVOffsets, shape_.kv_heads, shape_.value_dim, shape_.v),
                                   fe::graph::SDPA_attributes()
                                       .set_name("attention")
                                       .set_generate_stats(false)
                                       .set_attn_scale(shape_.scale)
                                       .set_causal_mask(true)
                                       .set_padding_mask(true)
                                       .set_seq_len_q(lengths)
                                       .set_seq_len_kv(lengths));
    out->set_output(true)
        .set_uid(kO)
        .set_dim({samples, shape_.heads, longest, shape_.value_dim})
        .set_stride({longest * shape_.out_width(), shape_.value_dim, shape_.out_width(), 1})
        .set_ragged_offset(out_offsets);
    DRAFTMILL_RETURN_IF_ERROR(CheckFrontend(graph.build(handle_, {fe::HeurMode_t::A}), "plan of attention"));
    return CheckFrontend(graph.get_workspace_size(plan.workspace_bytes), "workspace of attention");
  }

  const AttentionShape shape_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Plan>> plans_;
  cuda::DeviceBuffer<std::byte> workspace_;
};

}  // namespace

Result<std::unique_ptr<AttentionKernel>> MakeCudnnAttention(const AttentionShape& shape) {
  auto attention = std::make_unique<CudnnAttention>(shape);
  DRAFTMILL_RETURN_IF_ERROR(attention->Start());
  return std::unique_ptr<AttentionKernel>(std::move(attention));
}

std::string CudnnVersion() {
  const std::size_t version = cudnnGetVersion();
  return "cudnn " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace draftmill

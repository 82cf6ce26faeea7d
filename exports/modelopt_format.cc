// NVIDIA Model-Optimizer 0.47, offline EAGLE-3: one torch archive a conversation (modelopt/torch/speculative/eagle/utils.py,
// OfflineSupervisedDataset).
//
// {train,eval}/{conversation_id}.pt: input_ids int64 [T], hidden_states bf16 [T, H] after the final norm and so with
// hidden_states_prenorm False, aux_hidden_states bf16 [T, A*H], loss_mask int64 [T], conversation_id text. d2t.pt: int64 [D],
// offsets. It lies above the samples' folder, which ModelOpt searches for every *.pt.
#include <fmt/format.h>

#include "exports/eagle3_layers.h"
#include "exports/export_format.h"

namespace draftmill {
namespace {

class ModeloptFormat final : public ExportFormat {
 public:
  explicit ModeloptFormat(FormatContext context) : context_(std::move(context)) {}

  int version() const override { return 1; }

  Status Check() const override {
    DRAFTMILL_RETURN_IF_ERROR(CheckEagle3Layers(*context_.source, "modelopt", 0));
    DRAFTMILL_RETURN_IF_ERROR(CheckOutputNumbering(*context_.source, "modelopt"));
    return CheckPostNorm(*context_.source, "modelopt");
  }

  std::optional<SampleFile> FileOf(const ExportRow& row) const override {
    const std::string id = fmt::format("{:09}-{}", row.key.sample_id, row.key.variant);
    SampleFile file{.path = std::string(SplitName(row.split)) + "/" + id + ".pt"};
    file.entries.push_back({.name = "input_ids", .part = PartOf::kInputIds});
    file.entries.push_back({.name = "hidden_states",
                            .part = PartOf::kStates,
                            .states = {.slots = {FinalSlot(*context_.source)}, .post_norm = true}});
    file.entries.push_back(
        {.name = "aux_hidden_states", .part = PartOf::kStates, .states = {.slots = AuxSlots(*context_.source)}});
    file.entries.push_back({.name = "loss_mask", .part = PartOf::kLossMask});
    file.entries.push_back({.name = "conversation_id", .constant = torch_archive::Value(id)});
    file.entries.push_back({.name = "hidden_states_prenorm", .constant = torch_archive::Value(false)});
    return file;
  }

  Status Begin(OutputFiles& files, const ExportCounts&) override {
    const VocabMap& vocab = context_.source->vocab();
    if (!vocab.exists) return OkStatus();
    const torch_archive::Tensor d2t{safetensors::Dtype::kI64, {static_cast<std::int64_t>(vocab.d2t.size())}};
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string archive,
                               torch_archive::BuildArchive(d2t, {std::as_bytes(std::span(vocab.d2t))}));
    return files.Write("d2t.pt", archive);
  }
  Status AddRow(const ExportRow&, const RowTokens&) override { return OkStatus(); }
  Status Finish() override { return OkStatus(); }

  std::vector<std::string> Advice(const std::string& folder, const ExportCounts& counts) const override {
    std::vector<std::string> lines = {"data.offline_data_path: " + folder + "/train"};
    if (counts.eval_samples > 0) lines.push_back("the eval side is in " + folder + "/eval");
    lines.push_back(
        "answer_only_loss: true (without it ModelOpt trains on every token and leaves the stored mask aside)");
    if (context_.source->vocab().exists) {
      lines.push_back("data.draft_vocab_cache: " + folder + "/d2t.pt, and draft_vocab_size: " +
                      std::to_string(context_.source->vocab().d2t.size()) + " in eagle_architecture_config");
    }
    if (!HasDefaultAuxLayers(*context_.source)) {
      lines.push_back("eagle_aux_hidden_state_layer_ids: " + AuxLayerList(*context_.source, -1) +
                      " (outputs of layers)");
    }
    lines.push_back("training_seq_len: at least the longest sample; ModelOpt cuts what is longer");
    return lines;
  }

 private:
  const FormatContext context_;
};

}  // namespace

std::unique_ptr<ExportFormat> MakeModeloptFormat(FormatContext context) {
  return std::make_unique<ModeloptFormat>(std::move(context));
}

}  // namespace draftmill

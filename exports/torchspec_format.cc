// TorchSpec's offline folder, version 1 (torchspec/offline/dataset.py of the offline mode; torchspec/data/utils.py for the
// packed mask).
//
// dataset.json, manifest.jsonl with a line {split, data_id, file} a sample, samples/<sha1 of data_id>.pt with input_ids int64
// [T], hidden_states bf16 [T, A*H], last_hidden_states bf16 [T, H] after the final norm, data_id, packed_loss_mask (lengths of
// runs, the first one of unsupervised tokens, "2,3,2"), metadata. vocab_mapping.pt at the root.
#include <fmt/format.h>

#include "exports/eagle3_layers.h"
#include "exports/export_format.h"
#include "exports/sha1.h"

namespace draftmill {
namespace {

std::string DataId(const SampleKey& key) { return fmt::format("{}-{}", key.sample_id, key.variant); }
std::string SamplePath(const SampleKey& key) { return "samples/" + Sha1Hex(DataId(key)) + ".pt"; }

class TorchspecFormat final : public ExportFormat {
 public:
  explicit TorchspecFormat(FormatContext context) : context_(std::move(context)) {}

  int version() const override { return 1; }

  Status Check() const override {
    DRAFTMILL_RETURN_IF_ERROR(CheckEagle3Layers(*context_.source, "torchspec", 0));
    DRAFTMILL_RETURN_IF_ERROR(CheckOutputNumbering(*context_.source, "torchspec"));
    return CheckPostNorm(*context_.source, "torchspec");
  }

  std::optional<SampleFile> FileOf(const ExportRow& row) const override {
    SampleFile file{.path = SamplePath(row.key)};
    file.entries.push_back({.name = "input_ids", .part = PartOf::kInputIds});
    file.entries.push_back(
        {.name = "hidden_states", .part = PartOf::kStates, .states = {.slots = AuxSlots(*context_.source)}});
    file.entries.push_back({.name = "last_hidden_states",
                            .part = PartOf::kStates,
                            .states = {.slots = {FinalSlot(*context_.source)}, .post_norm = true}});
    file.entries.push_back({.name = "data_id", .constant = torch_archive::Value(DataId(row.key))});
    file.entries.push_back({.name = "packed_loss_mask", .part = PartOf::kPackedMask});
    file.entries.push_back({.name = "metadata", .constant = torch_archive::Value(torch_archive::Dict())});
    return file;
  }

  Status Begin(OutputFiles& files, const ExportCounts&) override {
    DRAFTMILL_RETURN_IF_ERROR(
        files.Write("dataset.json", "{\n  \"version\": 1,\n  \"last_hidden_states_prenorm\": false\n}\n"));
    if (context_.source->vocab().exists) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::string archive, VocabMappingArchive(context_.source->vocab()));
      DRAFTMILL_RETURN_IF_ERROR(files.Write("vocab_mapping.pt", archive));
    }
    DRAFTMILL_ASSIGN_OR_RETURN(manifest_, files.Open("manifest.jsonl"));
    return OkStatus();
  }

  Status AddRow(const ExportRow& row, const RowTokens&) override {
    const json::Value line =
        json::Object{{"split", SplitName(row.split)}, {"data_id", DataId(row.key)}, {"file", SamplePath(row.key)}};
    return manifest_->Append(json::Write(line) + "\n");
  }
  Status Finish() override { return manifest_->Close(); }

  std::vector<std::string> Advice(const std::string& folder, const ExportCounts&) const override {
    std::vector<std::string> lines = {"inference.inference_engine_type: offline",
                                      "inference.offline.data_path: " + folder, "inference.offline.num_engines: 1"};
    if (context_.source->vocab().exists) {
      lines.push_back(
          "draft_vocab_size of the drafter's configuration: " + std::to_string(context_.source->vocab().d2t.size()) +
          "; vocab_mapping.pt is found in the folder");
    }
    if (!HasDefaultAuxLayers(*context_.source)) {
      lines.push_back("aux_hidden_states_layers: " + AuxLayerList(*context_.source, -1) + " (outputs of layers)");
    }
    return lines;
  }

 private:
  const FormatContext context_;
  std::unique_ptr<OutputStream> manifest_;
};

}  // namespace

std::unique_ptr<ExportFormat> MakeTorchspecFormat(FormatContext context) {
  return std::make_unique<TorchspecFormat>(std::move(context));
}

}  // namespace draftmill

// SpecForge 0.2.0, offline EAGLE-3: one torch archive a sample (specforge/runtime/data_plane/offline_reader.py,
// specforge/algorithms/eagle3/data.py, scripts/prepare_hidden_states.py).
//
// rows_{g}-{g+2000}/data_{i}.ckpt: input_ids, loss_mask int64 [T], aux_hidden_state bf16 [1, T, 3H], hidden_state bf16 [1, T, H]
// after the final norm, all unshifted; SpecForge shifts, and sets the last mask position to 0 itself.
#include "exports/eagle3_layers.h"
#include "exports/export_format.h"

namespace draftmill {
namespace {

constexpr std::int64_t kFilesInFolder = 2000;

class SpecforgeFormat final : public ExportFormat {
 public:
  explicit SpecforgeFormat(FormatContext context) : context_(std::move(context)) {}

  int version() const override { return 1; }

  Status Check() const override {
    DRAFTMILL_RETURN_IF_ERROR(CheckEagle3Layers(*context_.source, "specforge", 3));
    DRAFTMILL_RETURN_IF_ERROR(CheckOutputNumbering(*context_.source, "specforge"));
    return CheckPostNorm(*context_.source, "specforge");
  }

  std::optional<SampleFile> FileOf(const ExportRow& row) const override {
    const std::int64_t group = row.index / kFilesInFolder * kFilesInFolder;
    const std::string side = context_.selection->splits() ? std::string(SplitName(row.split)) + "/" : "";
    SampleFile file{.path = side + "rows_" + std::to_string(group) + "-" + std::to_string(group + kFilesInFolder) +
                            "/data_" + std::to_string(row.index) + ".ckpt"};
    file.entries.push_back({.name = "input_ids", .part = PartOf::kInputIds});
    file.entries.push_back({.name = "loss_mask", .part = PartOf::kLossMask});
    file.entries.push_back(
        {.name = "hidden_state",
         .part = PartOf::kStates,
         .states = {.slots = {FinalSlot(*context_.source)}, .post_norm = true, .batch_extent = true}});
    file.entries.push_back({.name = "aux_hidden_state",
                            .part = PartOf::kStates,
                            .states = {.slots = AuxSlots(*context_.source), .batch_extent = true}});
    return file;
  }

  Status Begin(OutputFiles& files, const ExportCounts&) override {
    if (!context_.source->vocab().exists) return OkStatus();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string archive, VocabMappingArchive(context_.source->vocab()));
    return files.Write("vocab_mapping/vocab_mapping.pt", archive);
  }
  Status AddRow(const ExportRow&, const RowTokens&) override { return OkStatus(); }
  Status Finish() override { return OkStatus(); }

  std::vector<std::string> Advice(const std::string& folder, const ExportCounts&) const override {
    const bool splits = context_.selection->splits();
    std::vector<std::string> lines = {"data.hidden_states_path: " + folder + (splits ? "/train" : "")};
    if (splits) lines.push_back("data.eval_hidden_states_path: " + folder + "/eval");
    if (context_.source->vocab().exists) {
      lines.push_back("model.vocab_mapping_path: " + folder +
                      "/vocab_mapping/vocab_mapping.pt (without it SpecForge counts a map of its own)");
      lines.push_back("draft_vocab_size of the drafter's configuration: " +
                      std::to_string(context_.source->vocab().d2t.size()));
    }
    if (!HasDefaultAuxLayers(*context_.source)) {
      lines.push_back("model.aux_hidden_state_layer_ids: " + AuxLayerList(*context_.source, -1) +
                      " (outputs of layers)");
    }
    lines.push_back("data.max_length: at least the longest sample; SpecForge cuts what is longer");
    lines.push_back(
        "the model folder needs a model.safetensors.index.json; with tied embeddings model.lm_head_key: "
        "model.embed_tokens.weight");
    lines.push_back("files are taken in the order of their paths as text: data_10 before data_2");
    return lines;
  }

 private:
  const FormatContext context_;
};

}  // namespace

std::unique_ptr<ExportFormat> MakeSpecforgeFormat(FormatContext context) {
  return std::make_unique<SpecforgeFormat>(std::move(context));
}

}  // namespace draftmill

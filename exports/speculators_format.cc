// speculators 0.9.0 (speculators/train/data.py ArrowDataset, speculators/train/cli.py parse_vocab_mappings): a folder of
// Dataset.save_to_disk with one safetensors file a row.
//
// data-{i}-of-{n}.arrow, dataset_info.json, state.json: columns input_ids, loss_mask (lists of int64) and seq_len (int64), in
// torch's format. hidden_states/hs_{row}.safetensors: hidden_states bf16 [T, A+1, H], the final state last and before the norm;
// token_ids int64 [T]. d2t-{D}.npy, t2d-{D}.npy and token_freq.pt. The trainer splits by the order of rows.
#include <fmt/format.h>

#include <algorithm>

#include "exports/eagle3_layers.h"
#include "exports/export_format.h"
#include "formats/arrow_stream.h"
#include "formats/npy.h"

namespace draftmill {
namespace {

constexpr std::int64_t kRowsInBatch = 1000;
constexpr std::int64_t kTokensInBatch = std::int64_t{1} << 20;
/// Where a table file ends, as `datasets` cuts them.
constexpr std::int64_t kTableBytes = 500'000'000;

/// `datasets` keeps this in the schema and in dataset_info.json. "Sequence" is what every version reads.
json::Value Features() {
  const json::Value number = json::Object{{"dtype", "int64"}, {"_type", "Value"}};
  const json::Value list = json::Object{{"feature", number}, {"_type", "Sequence"}};
  return json::Object{{"input_ids", list}, {"loss_mask", list}, {"seq_len", number}};
}

class SpeculatorsFormat final : public ExportFormat {
 public:
  explicit SpeculatorsFormat(FormatContext context)
      : context_(std::move(context)),
        stream_({{"input_ids", ArrowType::kInt64List},
                 {"loss_mask", ArrowType::kInt64List},
                 {"seq_len", ArrowType::kInt64}},
                {{"huggingface", json::Write(json::Object{{"info", json::Object{{"features", Features()}}}})}}) {}

  int version() const override { return 1; }

  Status Check() const override {
    DRAFTMILL_RETURN_IF_ERROR(CheckEagle3Layers(*context_.source, "speculators", 0));
    const auto& norm = context_.source->final_norm();
    if (!norm) return CheckPostNorm(*context_.source, "speculators");
    if (norm->adds_one) {
      return Unsupported(
          "speculators takes states before the final norm and norms them itself with `weight`, but this model is a "
          "Gemma: "
          "its norm multiplies with 1 + weight. Every target distribution would be wrong. Nothing was written; the "
          "formats specforge, modelopt and torchspec hold the state after the right norm");
    }
    return OkStatus();
  }

  std::optional<SampleFile> FileOf(const ExportRow& row) const override {
    SampleFile file{.path = "hidden_states/hs_" + std::to_string(row.row) + ".safetensors",
                    .container = Container::kSafetensors};
    std::vector<std::int64_t> slots = AuxSlots(*context_.source);
    slots.push_back(FinalSlot(*context_.source));
    file.entries.push_back(
        {.name = "hidden_states", .part = PartOf::kStates, .states = {.slots = std::move(slots), .flat = false}});
    file.entries.push_back({.name = "token_ids", .part = PartOf::kInputIds});
    return file;
  }

  Status Begin(OutputFiles& files, const ExportCounts& counts) override {
    files_ = &files;
    // Sixteen bytes a token; rows are spread evenly, so that the number of files is known before the first one.
    tables_ = std::max<std::int64_t>(1, (16 * counts.tokens + kTableBytes - 1) / kTableBytes);
    rows_in_table_ = std::max<std::int64_t>(1, (counts.samples + tables_ - 1) / tables_);
    tables_ = std::max<std::int64_t>(1, (counts.samples + rows_in_table_ - 1) / rows_in_table_);
    DRAFTMILL_RETURN_IF_ERROR(WriteVocabulary());
    DRAFTMILL_RETURN_IF_ERROR(WriteDescriptions());
    return OpenTable();
  }

  Status AddRow(const ExportRow& row, const RowTokens& tokens) override {
    if (row.row > 0 && row.row % rows_in_table_ == 0) {
      DRAFTMILL_RETURN_IF_ERROR(CloseTable());
      DRAFTMILL_RETURN_IF_ERROR(OpenTable());
    }
    input_ids_.insert(input_ids_.end(), tokens.input_ids.begin(), tokens.input_ids.end());
    loss_mask_.insert(loss_mask_.end(), tokens.loss_mask.begin(), tokens.loss_mask.end());
    seq_len_.push_back(row.tokens);
    offsets_.push_back(static_cast<std::int32_t>(input_ids_.size()));
    const bool is_full = static_cast<std::int64_t>(seq_len_.size()) >= kRowsInBatch ||
                         static_cast<std::int64_t>(input_ids_.size()) >= kTokensInBatch;
    return is_full ? FlushBatch() : OkStatus();
  }
  Status Finish() override { return CloseTable(); }

  std::vector<std::string> Advice(const std::string& folder, const ExportCounts& counts) const override {
    std::vector<std::string> lines = {"--data-path " + folder};
    if (counts.eval_samples > 0) {
      // The trainer cuts at int(rows * ratio).
      const double ratio = (static_cast<double>(counts.train_samples) + 0.5) / static_cast<double>(counts.samples);
      lines.push_back("--train-data-ratio " + json::PythonRepr(ratio) + " (the first " +
                      std::to_string(counts.train_samples) + " rows train)");
    }
    if (context_.source->vocab().exists) {
      lines.push_back("--draft-vocab-size " + std::to_string(context_.source->vocab().d2t.size()) +
                      " (d2t and t2d are found by this number)");
    }
    lines.push_back("--on-missing raise");
    if (!HasDefaultAuxLayers(*context_.source)) {
      lines.push_back("--target-layer-ids " + AuxLayerList(*context_.source, 0) + " (inputs of layers)");
    }
    lines.push_back(
        "--total-seq-len: at least the longest sample; on a CPU draft_attn_impl=sdpa and loss_implementation=eager");
    return lines;
  }

 private:
  Status WriteVocabulary() {
    const VocabMap& vocab = context_.source->vocab();
    torch_archive::Dict frequencies;
    for (std::size_t id = 0; id < vocab.token_freq.size(); ++id) {
      if (vocab.token_freq[id] > 0) frequencies.Add(static_cast<std::int64_t>(id), vocab.token_freq[id]);
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string archive, torch_archive::BuildArchive(std::move(frequencies), {}));
    DRAFTMILL_RETURN_IF_ERROR(files_->Write("token_freq.pt", archive));
    if (!vocab.exists) return OkStatus();
    const std::string size = std::to_string(vocab.d2t.size());
    DRAFTMILL_RETURN_IF_ERROR(files_->Write("d2t-" + size + ".npy", NpyOfInt64(vocab.d2t)));
    return files_->Write("t2d-" + size + ".npy", NpyOfBool(vocab.t2d));
  }

  Status WriteDescriptions() {
    json::Array data_files;
    for (std::int64_t table = 0; table < tables_; ++table)
      data_files.emplace_back(json::Object{{"filename", TableName(table)}});
    const json::Value state = json::Object{{"_data_files", std::move(data_files)},
                                           {"_fingerprint", context_.source->manifest_digest().substr(0, 16)},
                                           {"_format_columns", nullptr},
                                           {"_format_kwargs", json::Object{}},
                                           {"_format_type", "torch"},
                                           {"_output_all_columns", false},
                                           {"_split", nullptr}};
    DRAFTMILL_RETURN_IF_ERROR(files_->Write("state.json", json::Write(state, json::Style::kPretty)));
    const json::Value info = json::Object{
        {"citation", ""}, {"description", ""}, {"features", Features()}, {"homepage", ""}, {"license", ""}};
    return files_->Write("dataset_info.json", json::Write(info, json::Style::kPretty));
  }

  std::string TableName(std::int64_t table) const { return fmt::format("data-{:05}-of-{:05}.arrow", table, tables_); }

  Status OpenTable() {
    DRAFTMILL_ASSIGN_OR_RETURN(table_, files_->Open(TableName(next_table_++)));
    return table_->Append(stream_.Begin());
  }
  Status CloseTable() {
    DRAFTMILL_RETURN_IF_ERROR(FlushBatch());
    DRAFTMILL_RETURN_IF_ERROR(table_->Append(stream_.End()));
    return table_->Close();
  }
  Status FlushBatch() {
    if (seq_len_.empty()) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(
        table_->Append(stream_.Batch({ArrowColumn::Lists(offsets_, input_ids_),
                                      ArrowColumn::Lists(offsets_, loss_mask_), ArrowColumn::Numbers(seq_len_)})));
    input_ids_.clear();
    loss_mask_.clear();
    seq_len_.clear();
    offsets_ = {0};
    return OkStatus();
  }

  const FormatContext context_;
  const ArrowStream stream_;
  OutputFiles* files_ = nullptr;
  std::unique_ptr<OutputStream> table_;
  std::int64_t tables_ = 1;
  std::int64_t rows_in_table_ = 1;
  std::int64_t next_table_ = 0;
  // The batch that is being filled.
  std::vector<std::int32_t> offsets_ = {0};
  std::vector<std::int64_t> input_ids_;
  std::vector<std::int64_t> loss_mask_;
  std::vector<std::int64_t> seq_len_;
};

}  // namespace

std::unique_ptr<ExportFormat> MakeSpeculatorsFormat(FormatContext context) {
  return std::make_unique<SpeculatorsFormat>(std::move(context));
}

}  // namespace draftmill

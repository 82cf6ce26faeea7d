// JSON lines of ids, masks and text, without states: train.jsonl, and eval.jsonl where there is a split.
//
// {"row", "sample_id", "variant", "source", "input_ids", "loss_mask", "text"}, one line a sample. `text` is what the tokens
// stand for, with U+FFFD for bytes that are no UTF-8. SpecForge's `data.prompts_path` takes these lines.
#include "base/utf8.h"
#include "exports/export_format.h"

namespace draftmill {
namespace {

class JsonlFormat final : public ExportFormat {
 public:
  explicit JsonlFormat(FormatContext context) : context_(std::move(context)) {}

  int version() const override { return 1; }

  Status Check() const override {
    if (context_.token_bytes) return OkStatus();
    return Unsupported(
        "jsonl writes the text of each sample, and the model's tokenizer could not be loaded. Nothing was written. Put "
        "the "
        "model's folder where `model.path` of the run says");
  }

  std::optional<SampleFile> FileOf(const ExportRow&) const override { return std::nullopt; }

  Status Begin(OutputFiles& files, const ExportCounts& counts) override {
    if (counts.train_samples > 0) {
      DRAFTMILL_ASSIGN_OR_RETURN(train_, files.Open("train.jsonl"));
    }
    if (counts.eval_samples > 0) {
      DRAFTMILL_ASSIGN_OR_RETURN(eval_, files.Open("eval.jsonl"));
    }
    return OkStatus();
  }

  Status AddRow(const ExportRow& row, const RowTokens& tokens) override {
    json::Array ids, mask;
    std::string text;
    for (const std::int32_t id : tokens.input_ids) {
      ids.emplace_back(std::int64_t{id});
      text += context_.token_bytes(id);
    }
    for (const std::uint8_t supervised : tokens.loss_mask) mask.emplace_back(std::int64_t{supervised});
    const json::Value line = json::Object{{"row", row.row},
                                          {"sample_id", row.key.sample_id},
                                          {"variant", row.key.variant},
                                          {"source", context_.source->SourceName(row.source)},
                                          {"input_ids", std::move(ids)},
                                          {"loss_mask", std::move(mask)},
                                          {"text", RepairedUtf8(text)}};
    return (row.split == Split::kTrain ? train_ : eval_)->Append(json::Write(line) + "\n");
  }

  Status Finish() override {
    if (train_) DRAFTMILL_RETURN_IF_ERROR(train_->Close());
    return eval_ ? eval_->Close() : OkStatus();
  }

  std::vector<std::string> Advice(const std::string& folder, const ExportCounts& counts) const override {
    std::vector<std::string> lines = {"SpecForge online: data.prompts_path: " + folder + "/train.jsonl"};
    if (counts.eval_samples > 0) lines.push_back("the eval side is " + folder + "/eval.jsonl");
    return lines;
  }

 private:
  const FormatContext context_;
  std::unique_ptr<OutputStream> train_;
  std::unique_ptr<OutputStream> eval_;
};

}  // namespace

std::unique_ptr<ExportFormat> MakeJsonlFormat(FormatContext context) {
  return std::make_unique<JsonlFormat>(std::move(context));
}

}  // namespace draftmill

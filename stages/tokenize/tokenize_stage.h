// The tokenize stage: conversations in, samples of token ids and loss masks out.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto stage, TokenizeStage::Create(options, {.model_folder = "models/qwen3"}));
//   std::unique_ptr<TokenizeStage::LocalState> local = stage->MakeLocalState();      // one per thread
//   DRAFTMILL_ASSIGN_OR_RETURN(TokenizedChunk chunk, stage->TokenizeChunk(ingested, *local));
//   TokenizeReport report = local->TakeReport();
//
// A row that cannot be used becomes a Failure with a fixed reason word (docs/loss_mask.md lists them); only a bug or a
// lost resource makes TokenizeChunk itself fail. The result is a function of the rows, the options and the model's
// files. Thread-safety: a TokenizeStage is const and shared; a LocalState belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "formats/records.h"
#include "stages/tokenize/conversation_renderer.h"
#include "stages/tokenize/loss_mask.h"
#include "stages/tokenize/model_text_files.h"
#include "stages/tokenize/tokenize_options.h"
#include "stages/tokenize/tokenize_report.h"
#include "stages/tokenize/tokenizer.h"

namespace draftmill {

/// One row as `draftmill tokenize` prints it: a sample, or the reason why there is none.
struct TokenizedSample {
  std::int32_t variant = 0;
  std::int32_t turn = -1;  ///< index of the last supervised message
  std::string text;        ///< empty for a pre-tokenized row without text
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;
  std::vector<ByteRange> offsets;  ///< of the tokens in `text`; empty where that is not known
  bool text_differs = false;       ///< a pre-tokenized row whose text has other ids by our tokenizer
  std::string error_reason;        ///< not empty: no sample; the fixed word
  std::string error_message;
};

class TokenizeStage {
 public:
  /// Where the model's text files lie. Either the folder or the tokenizer file must be named.
  struct Inputs {
    std::string model_folder;    ///< config.json, tokenizer.json or tiktoken.model, chat template
    std::string tokenizer_file;  ///< instead of the folder's
  };

  class LocalState;

  static Result<std::unique_ptr<const TokenizeStage>> Create(const TokenizeOptions& options, const Inputs& inputs);
  /// The same with a tokenizer and files that are already in memory.
  static Result<std::unique_ptr<const TokenizeStage>> Create(const TokenizeOptions& options,
                                                             std::unique_ptr<const Tokenizer> tokenizer,
                                                             ModelTextFiles files);
  ~TokenizeStage();

  std::unique_ptr<LocalState> MakeLocalState() const;

  Result<TokenizedChunk> TokenizeChunk(const IngestedChunk& chunk, LocalState& local) const;

  /// All samples and failures of one row: a canonical conversation, or {"text": ...}, which is encoded as it is.
  Result<std::vector<TokenizedSample>> TokenizeRow(const json::Value& row, LocalState& local) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Without one only pre-tokenized rows and plain texts can be worked on.
  bool has_chat_template() const { return renderer_ != nullptr; }
  /// Ids that end a turn, ascending: what the vocabulary map forces in.
  const std::vector<std::int32_t>& stop_tokens() const { return files_.stop_tokens; }
  const std::string& tokenizer_fingerprint() const { return tokenizer_->fingerprint(); }
  /// Over the templates, special tokens, stop tokens and limits that the model's files state.
  const std::string& template_fingerprint() const { return files_.fingerprint; }

 private:
  /// A sample or a failure as it passes to whoever collects them.
  struct SampleView {
    std::int32_t variant = 0;
    std::int32_t turn = -1;
    std::string_view text;
    std::span<const std::int32_t> ids;
    std::span<const std::uint8_t> mask;
    const Encoding* encoding = nullptr;  ///< null where there are no byte ranges
    std::string_view reason;             ///< not empty: a failure
    std::string_view message;
    bool text_differs = false;
  };
  using Sink = std::function<void(const SampleView&)>;

  TokenizeStage() = default;

  Status PrepareTemplates();
  Status ResolveStopTokens();

  /// Hands every sample and failure of a row to `sink`. Fails only where the run cannot go on.
  Status ProcessRow(const json::Value& row, LocalState& local, const Sink& sink) const;
  Status ProcessConversation(const json::Value& row, LocalState& local, const Sink& sink) const;
  Status ProcessPretokenized(const json::Value& row, LocalState& local, const Sink& sink) const;
  Status ProcessText(const json::Value& row, LocalState& local, const Sink& sink) const;
  /// Renders, encodes and masks the first `messages` messages; a failure is that of the sample. Fields that were not
  /// rendered are counted from message `first_counted` on.
  Status MakeSample(std::size_t messages, std::size_t first_counted, const std::vector<std::int32_t>& turns,
                    const ConversationRenderer& renderer, LocalState& local) const;
  Status CheckSpecialTokens(LocalState& local, const std::vector<jinja::FieldSlot>& slots) const;
  Status CheckReasoning(const std::vector<std::int32_t>& turns, LocalState& local,
                        const std::vector<jinja::FieldSlot>& slots) const;
  Status LimitLength(LocalState& local) const;
  Result<bool> DropsReasoning(const ConversationRenderer& renderer, LocalState& local) const;
  void CountRendering(std::size_t first_message, LocalState& local, const std::vector<jinja::FieldSlot>& slots) const;

  TokenizeOptions options_;
  ModelTextFiles files_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ConversationRenderer> renderer_;  ///< null where the model has no chat template
  std::unique_ptr<const ConversationRenderer>
      tool_renderer_;             ///< for rows with tools, where the model has two templates
  std::vector<bool> is_special_;  ///< by id
  std::optional<std::int64_t> max_length_;
};

/// Working memory and counters of one thread.
class TokenizeStage::LocalState {
 public:
  /// The counters since the last call.
  TokenizeReport TakeReport() { return std::exchange(report_, {}); }

 private:
  friend class TokenizeStage;

  TokenizeReport report_;
  std::unique_ptr<ConversationRenderer::Scratch> scratch_;
  std::unique_ptr<ConversationRenderer::Scratch> tool_scratch_;
  ConversationRenderer::Scratch* current_ = nullptr;  ///< of the row in hand
  Tokenizer::Scratch tokenizer_scratch_;
  RenderedText rendered_;
  std::vector<bool> slot_is_rendered_;
  std::vector<ByteRange> plain_ranges_;
  Encoding encoding_;
  LossMaskResult mask_;
  std::string reason_;  ///< fixed word of the failure that is on its way up
};

}  // namespace draftmill

// Any bytes as a row, through canonical form, chat template, tokenizer and loss mask. The first byte chooses template
// and options. Whatever the row says: the tokens tile the text in order, the mask fits the ids, and nothing that a
// message of another role says is supervised.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "stages/ingest/conversation.h"
#include "stages/tokenize/test_tokenizer.h"
#include "stages/tokenize/tokenize_stage.h"

namespace draftmill {
namespace {

/// Roles other than the model's are written in this, so that what is supervised can be told from outside.
constexpr std::string_view kForeign = "\x01";

constexpr std::array<std::string_view, 3> kTemplates = {
    // ChatML with reasoning and tool calls; the stop token is the template's own.
    R"({% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role != 'assistant' %}{{ m.content | string | replace('%', '\x01') }}{% else %}{% if m.reasoning_content is string %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})",
    // The next role's token ends a turn; reasoning of earlier turns is dropped.
    R"({% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>{% if '</think>' in m.content and not loop.last %}{{ m.content.split('</think>')[-1] | trim }}{% else %}{{ m.content }}{% endif %}{% else %}<|user|>{{ m.content | string | replace('%', '\x01') }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})",
    // Says itself what is supervised.
    R"({% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content | string | replace('%', '\x01') }}{% endif %}{% endfor %})",
};

/// One stage for each template and each way of making samples.
const TokenizeStage* StageOf(std::size_t choice) {
  static std::array<std::unique_ptr<const TokenizeStage>, kTemplates.size() * 4> stages;
  std::unique_ptr<const TokenizeStage>& stage = stages[choice];
  if (stage != nullptr) return stage.get();
  TokenizeOptions options;
  options.stop_tokens = {"<|im_end|>", "<|user|>"};
  const std::size_t way = choice / kTemplates.size();
  options.expand = way == 1 ? Expand::kPerTurn : Expand::kAuto;
  options.train_on_reasoning = way != 2;
  if (way == 3) {
    options.max_length = 40;
    options.special_in_text = SpecialInText::kAsText;
  }
  ModelTextFiles files;
  files.chat_template = kTemplates[choice % kTemplates.size()];
  auto made = TokenizeStage::Create(options,
                                    std::make_unique<ByteTokenizer>(std::vector<std::string>{
                                        "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<think>"}),
                                    std::move(files));
  if (!made.ok()) std::abort();
  stage = std::move(made).value();
  return stage.get();
}

void CheckSample(const TokenizedSample& sample) {
  if (!sample.error_reason.empty()) {
    if (!IsValidUtf8(sample.error_message)) std::abort();
    return;
  }
  if (sample.input_ids.size() != sample.loss_mask.size()) std::abort();
  if (sample.offsets.empty()) return;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sample.offsets.size(); ++i) {
    const ByteRange range = sample.offsets[i];
    if (range.begin != last || range.end < range.begin) std::abort();
    last = range.end;
    const std::string_view text =
        std::string_view(sample.text)
            .substr(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - range.begin));
    if (sample.loss_mask[i] != 0 && text.find(kForeign) != std::string_view::npos) std::abort();
  }
  if (last > static_cast<std::int64_t>(sample.text.size())) std::abort();
}

}  // namespace
}  // namespace draftmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace draftmill;
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // No row says the byte by itself: JSON escapes it.
  if (text.find("\\u0001") != std::string_view::npos) return 0;
  const Result<json::Value> row = json::Parse(text);
  if (!row.ok()) return 0;
  const Result<json::Value> conversation = CanonicalConversation(*row, RowForm::kAuto, (data[0] & 0x80U) == 0);
  if (!conversation.ok()) return 0;
  const TokenizeStage& stage = *StageOf(data[0] % (kTemplates.size() * 4));
  const std::unique_ptr<TokenizeStage::LocalState> local = stage.MakeLocalState();
  const Result<std::vector<TokenizedSample>> samples = stage.TokenizeRow(*conversation, *local);
  if (!samples.ok()) std::abort();
  for (const TokenizedSample& sample : *samples) CheckSample(sample);
  return 0;
}

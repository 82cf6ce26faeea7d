// What rendering and the loss mask cost, without tokenizing: bytes of rendered text per second, for chats of 2 to 40
// turns.
//
// The template is ChatML as SmolLM2 has it; the generation prompt is constant there. The second template writes its
// prompt inside the loop, so that every turn's prompt must be rendered.
#include <benchmark/benchmark.h>

#include "stages/tokenize/conversation_renderer.h"
#include "stages/tokenize/loss_mask.h"
#include "stages/tokenize/test_tokenizer.h"

namespace draftmill {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe "
    "kind.<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr std::string_view kPromptInLoop =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% if loop.last and add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}{% endfor %}";

json::Value Conversation(std::int64_t turns) {
  json::Array messages;
  for (std::int64_t i = 0; i < turns; ++i) {
    json::Object message;
    message.emplace_back("role", i % 2 == 0 ? "user" : "assistant");
    message.emplace_back("content", std::string(200, static_cast<char>('a' + i % 26)));
    messages.emplace_back(std::move(message));
  }
  json::Object row;
  row.emplace_back("messages", std::move(messages));
  return json::Value(std::move(row));
}

void RenderAndMask(benchmark::State& state, std::string_view source) {
  auto chat_template = jinja::ChatTemplate::Parse(source);
  auto renderer = ConversationRenderer::Create(std::move(chat_template).value(), {});
  const auto scratch = (*renderer)->MakeScratch();
  const json::Value row = Conversation(state.range(0));
  const ByteTokenizer tokenizer({"<|im_start|>", "<|im_end|>"});
  const Tokenizer::Scratch tokenizer_scratch = tokenizer.MakeScratch();
  const std::vector<std::int32_t> stops = {ByteTokenizer::kFirstSpecial + 1};
  RenderedText rendered;
  LossMaskResult mask;
  Encoding kept;
  for (auto _ : state) {
    if (!(*renderer)->Load(row, *scratch).ok()) state.SkipWithError("load");
    if (!(*renderer)->Render(*scratch, {static_cast<std::size_t>(state.range(0)), false}, rendered).ok())
      state.SkipWithError("render");
    std::vector<SupervisedTurn> turns;
    for (std::int32_t i = 1; i < state.range(0); i += 2) {
      turns.push_back({i, (*renderer)->PromptAfter(*scratch, static_cast<std::size_t>(i), rendered).value()});
    }
    if (kept.ids.empty() && !tokenizer.Encode(rendered.text, {}, *tokenizer_scratch, kept).ok())
      state.SkipWithError("encode");
    ComputeLossMask(rendered, scratch->slots(), scratch->roles(), kept, turns, {.stop_tokens = stops}, mask);
    benchmark::DoNotOptimize(mask.supervised_tokens);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(rendered.text.size()));
}

BENCHMARK_CAPTURE(RenderAndMask, chatml, kChatMl)->Arg(2)->Arg(6)->Arg(40);
BENCHMARK_CAPTURE(RenderAndMask, prompt_in_loop, kPromptInLoop)->Arg(2)->Arg(6)->Arg(40);

}  // namespace
}  // namespace draftmill

BENCHMARK_MAIN();

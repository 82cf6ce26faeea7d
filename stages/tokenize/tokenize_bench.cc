// What rendering and the loss mask cost, without tokenizing: bytes of rendered text per second, for chats of 2 to 40
// turns.
//
// The template is ChatML as SmolLM2 has it; the generation prompt is constant there. The second template writes its
// prompt inside the loop, so that every turn's prompt must be rendered.
//
// Where DRAFTMILL_BENCH_MODELS names a folder of model folders and DRAFTMILL_BENCH_ROWS a file of conversations
// (tests/bench_text.py makes both), the same on real models: rendering and mask, tokenizing, and the whole stage with one
// thread and two. All three count bytes of rendered text.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "stages/tokenize/conversation_renderer.h"
#include "stages/tokenize/loss_mask.h"
#include "stages/tokenize/model_text_files.h"
#include "stages/tokenize/test_tokenizer.h"
#include "stages/tokenize/tokenize_stage.h"

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

/// A model folder, the conversations that its template takes, and what they become.
struct BenchModel {
  std::string name;
  std::unique_ptr<const Tokenizer> tokenizer;
  ModelTextFiles files;
  std::unique_ptr<const ConversationRenderer> renderer;
  std::unique_ptr<const TokenizeStage> stage;
  std::vector<json::Value> rows;
  std::vector<Encoding> encodings;  ///< of the rendered rows
  std::vector<std::string> texts;
  std::int64_t bytes = 0;  ///< of all texts
};

/// Renders a row with the prompts of its turns.
Status RenderTurns(const BenchModel& model, const json::Value& row, ConversationRenderer::Scratch& scratch,
                   RenderedText& rendered, std::vector<SupervisedTurn>& turns) {
  DRAFTMILL_RETURN_IF_ERROR(model.renderer->Load(row, scratch));
  const std::size_t count = scratch.roles().size();
  DRAFTMILL_RETURN_IF_ERROR(model.renderer->Render(scratch, {count, false}, rendered));
  turns.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (scratch.roles()[i] != MessageRole::kAssistant) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(GenerationPrompt prompt, model.renderer->PromptAfter(scratch, i, rendered));
    turns.push_back({static_cast<std::int32_t>(i), std::move(prompt)});
  }
  return OkStatus();
}

Result<std::unique_ptr<BenchModel>> LoadBenchModel(const std::string& folder, const std::vector<json::Value>& rows) {
  auto model = std::make_unique<BenchModel>();
  model->name = std::filesystem::path(folder).filename();
  DRAFTMILL_ASSIGN_OR_RETURN(model->tokenizer, Tokenizer::LoadFolder(folder));
  DRAFTMILL_ASSIGN_OR_RETURN(model->files, ReadModelTextFiles(folder, "", *model->tokenizer));
  DRAFTMILL_ASSIGN_OR_RETURN(auto chat_template, jinja::ChatTemplate::Parse(model->files.chat_template));
  DRAFTMILL_ASSIGN_OR_RETURN(model->renderer, ConversationRenderer::Create(
                                                  std::move(chat_template),
                                                  {.variables = model->files.special_tokens, .now = {}, .limits = {}}));
  DRAFTMILL_ASSIGN_OR_RETURN(model->stage, TokenizeStage::Create({}, {.model_folder = folder, .tokenizer_file = {}}));
  const auto scratch = model->renderer->MakeScratch();
  const Tokenizer::Scratch tokenizer_scratch = model->tokenizer->MakeScratch();
  RenderedText rendered;
  std::vector<SupervisedTurn> turns;
  for (const json::Value& row : rows) {
    if (!RenderTurns(*model, row, *scratch, rendered, turns).ok()) continue;
    model->rows.push_back(row);
    model->texts.push_back(rendered.text);
    model->bytes += static_cast<std::int64_t>(rendered.text.size());
    DRAFTMILL_RETURN_IF_ERROR(
        model->tokenizer->Encode(rendered.text, {}, *tokenizer_scratch, model->encodings.emplace_back()));
  }
  return model;
}

void BenchRenderAndMask(benchmark::State& state, const BenchModel& model) {
  const auto scratch = model.renderer->MakeScratch();
  RenderedText rendered;
  LossMaskResult mask;
  std::vector<SupervisedTurn> turns;
  for ([[maybe_unused]] const auto iteration : state) {
    for (std::size_t i = 0; i < model.rows.size(); ++i) {
      if (!RenderTurns(model, model.rows[i], *scratch, rendered, turns).ok()) state.SkipWithError("not rendered");
      ComputeLossMask(rendered, scratch->slots(), scratch->roles(), model.encodings[i], turns,
                      {.stop_tokens = model.files.stop_tokens}, mask);
      benchmark::DoNotOptimize(mask.supervised_tokens);
    }
  }
  state.SetBytesProcessed(state.iterations() * model.bytes);
}

void BenchEncode(benchmark::State& state, const BenchModel& model) {
  const Tokenizer::Scratch scratch = model.tokenizer->MakeScratch();
  Encoding encoding;
  for ([[maybe_unused]] const auto iteration : state) {
    for (const std::string& text : model.texts) {
      if (!model.tokenizer->Encode(text, {}, *scratch, encoding).ok()) state.SkipWithError("not encoded");
    }
  }
  state.SetBytesProcessed(state.iterations() * model.bytes);
}

void BenchStage(benchmark::State& state, const BenchModel& model) {
  const auto local = model.stage->MakeLocalState();
  for ([[maybe_unused]] const auto iteration : state) {
    for (const json::Value& row : model.rows) {
      if (!model.stage->TokenizeRow(row, *local).ok()) state.SkipWithError("not tokenized");
    }
  }
  state.SetBytesProcessed(state.iterations() * model.bytes);
}

/// The benchmarks of the models that the environment names; they live as long as the result.
std::vector<std::unique_ptr<BenchModel>> RegisterModels() {
  std::vector<std::unique_ptr<BenchModel>> models;
  const char* const folders = std::getenv("DRAFTMILL_BENCH_MODELS");
  const char* const rows_file = std::getenv("DRAFTMILL_BENCH_ROWS");
  if (folders == nullptr || rows_file == nullptr) return models;
  std::vector<json::Value> rows;
  std::ifstream file(rows_file);
  for (std::string line; std::getline(file, line);) {
    if (Result<json::Value> row = json::Parse(line); row.ok()) rows.push_back(std::move(row).value());
  }
  for (const auto& entry : std::filesystem::directory_iterator(folders)) {
    Result<std::unique_ptr<BenchModel>> model = LoadBenchModel(entry.path().string(), rows);
    if (!model.ok()) {
      std::cerr << entry.path() << ": " << model.status().ToString() << '\n';
      continue;
    }
    const BenchModel& loaded = *models.emplace_back(std::move(model).value());
    benchmark::RegisterBenchmark(("render_and_mask/" + loaded.name).c_str(), BenchRenderAndMask, std::cref(loaded));
    benchmark::RegisterBenchmark(("encode/" + loaded.name).c_str(), BenchEncode, std::cref(loaded));
    for (const int threads : {1, 2}) {
      benchmark::RegisterBenchmark(("stage/" + loaded.name).c_str(), BenchStage, std::cref(loaded))
          ->Threads(threads)
          ->UseRealTime();
    }
  }
  return models;
}

int Run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::vector<std::unique_ptr<BenchModel>> models = RegisterModels();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace draftmill

int main(int argc, char** argv) { return draftmill::Run(argc, argv); }

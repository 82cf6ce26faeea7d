// Speed of encoding and of loading, one thread, on real tokenizers of the test data.
//
// Texts are the files NAME.txt of the folder that DRAFTMILL_BENCH_TEXTS names, with documents separated by NUL bytes
// (tests/bench_tokenizers.py writes them, and sets the results beside those of `tokenizers` and `tiktoken`). Without
// it, lines of the test data serve, and adversarial texts.
#include <benchmark/benchmark.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "stages/tokenize/tokenizer.h"
#include "stages/tokenize/tokenizer/tiktoken_model.h"
#include "stages/tokenize/tokenizer/tokenizer_json.h"

namespace draftmill {
namespace {

using Documents = std::vector<std::string>;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Unpack(const std::string& packed) {
  std::string text(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  return text;
}

Documents SplitAt(const std::string& text, char separator) {
  Documents documents;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) documents.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return documents;
}

std::string Repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

std::map<std::string, Documents> Texts() {
  std::map<std::string, Documents> texts;
  if (const char* const folder = std::getenv("DRAFTMILL_BENCH_TEXTS"); folder != nullptr) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".txt") texts[entry.path().stem()] = SplitAt(ReadFile(entry.path()), '\0');
    }
    return texts;
  }
  const std::filesystem::path data = std::filesystem::path(TestDataFolder()) / "conversations";
  texts["english"] = SplitAt(ReadFile(data / "mgsm/mgsm_en.tsv"), '\n');
  texts["chinese"] = SplitAt(ReadFile(data / "mgsm/mgsm_zh.tsv"), '\n');
  texts["code"] = SplitAt(ReadFile(data / "eagle_bench/humaneval.jsonl"), '\n');
  const std::pair<const char*, std::string_view> kAdversarial[] = {
      {"one_letter", "a"},
      {"spaces", " "},
      {"digits", "7"},
      {"emoji", "\xF0\x9F\x98\x80"},
      {"marks", "\xCC\x81"},
      {"words", "qwertyuiopzxcvbnmlkjhgfdsa"},
      {"han", "\xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97"},
  };
  for (const auto& [name, part] : kAdversarial) texts[std::string("mebibyte_of_") + name] = {Repeated(part, 1 << 20)};
  return texts;
}

Result<std::unique_ptr<const Tokenizer>> Load(const std::string& name, const std::string& content) {
  return name == "kimi_k2" ? ParseTiktokenModel(content, std::nullopt) : ParseTokenizerJson(content, "");
}

void BenchEncode(benchmark::State& state, const Tokenizer& tokenizer, const Documents& documents) {
  const Tokenizer::Scratch scratch = tokenizer.MakeScratch();
  Encoding encoding;
  std::int64_t bytes = 0;
  std::int64_t tokens = 0;
  for ([[maybe_unused]] const auto iteration : state) {
    for (const std::string& document : documents) {
      if (!tokenizer.Encode(document, {}, *scratch, encoding).ok()) state.SkipWithError("not encoded");
      bytes += static_cast<std::int64_t>(document.size());
      tokens += static_cast<std::int64_t>(encoding.ids.size());
    }
  }
  state.SetBytesProcessed(bytes);
  state.counters["bytes_per_token"] =
      static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(tokens, 1));
}

void BenchLoad(benchmark::State& state, const std::string& name, const std::string& content) {
  for ([[maybe_unused]] const auto iteration : state) {
    if (!Load(name, content).ok()) state.SkipWithError("not loaded");
  }
}

int Run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::optional<std::string> folder = TestDataPath("tokenizers");
  if (!folder) {
    std::cerr << "no test data at " << TestDataFolder() << "; nothing to measure\n";
    return 0;
  }
  const std::map<std::string, Documents> texts = Texts();
  std::map<std::string, std::string> contents;
  std::vector<std::unique_ptr<const Tokenizer>> tokenizers;
  for (const char* const name : {"qwen3", "deepseek_v3", "gptoss", "llama2", "mistral03", "gpt2", "kimi_k2"}) {
    const std::string file = std::string(name) == "kimi_k2" ? "tiktoken.model.zst" : "tokenizer.json.zst";
    contents[name] = Unpack(ReadFile(std::filesystem::path(*folder) / name / file));
    Result<std::unique_ptr<const Tokenizer>> tokenizer = Load(name, contents[name]);
    if (!tokenizer.ok()) {
      std::cerr << name << ": " << tokenizer.status().ToString() << '\n';
      return 1;
    }
    tokenizers.push_back(std::move(tokenizer).value());
    benchmark::RegisterBenchmark((std::string("load/") + name).c_str(), BenchLoad, name, std::cref(contents[name]))
        ->Unit(benchmark::kMillisecond);
    for (const auto& [kind, documents] : texts) {
      benchmark::RegisterBenchmark((std::string("encode/") + name + "/" + kind).c_str(), BenchEncode,
                                   std::cref(*tokenizers.back()), std::cref(documents))
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace draftmill

int main(int argc, char** argv) { return draftmill::Run(argc, argv); }

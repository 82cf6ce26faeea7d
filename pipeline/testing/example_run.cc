#include "pipeline/testing/example_run.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "pipeline/progress/progress.h"
#include "stages/tokenize/tokenizer/byte_alphabet.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

json::Value TinyConfig() {
  return json::Parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 7, "num_attention_heads": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5, "vocab_size": 300, "max_position_embeddings": 256, "tie_word_embeddings": true,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16", "eos_token_id": 257})")
      .value();
}

/// One token a byte, and two control tokens: enough for any text.
json::Value ByteTokenizer() {
  json::Object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char content = static_cast<char>(byte);
    vocabulary.emplace_back(ByteLevelOfBytes({&content, 1}), std::int64_t{byte});
  }
  json::Array added;
  std::int64_t id = 256;
  for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back(json::Object{{"id", id++},
                                 {"content", content},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }
  json::Object byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return json::Object{
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", std::move(byte_level)},
      {"model", json::Object{{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", json::Array{}}}}};
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

class ExampleExtractor final : public Extractor {
 public:
  explicit ExampleExtractor(ModelDescription model) : model_(std::move(model)) {}

  Status ExtractBlock(const BlockRequest& request, const std::function<Status(BatchStates)>& emit,
                      const std::function<bool()>& should_stop) override {
    for (const std::int64_t batch : request.batches) {
      if (should_stop()) return Cancelled("stopped on request");
      DRAFTMILL_RETURN_IF_ERROR(emit(StatesOf(*request.chunk, *request.plan, batch)));
    }
    return OkStatus();
  }
  const ModelDescription& model() const override { return model_; }
  std::string numerics_environment() const override { return "example"; }
  std::string weights_digest() const override { return std::string(32, '0'); }

 private:
  BatchStates StatesOf(const TokenizedChunk& chunk, const ChunkPlan& plan, std::int64_t batch) const {
    BatchStates states;
    states.chunk = chunk.chunk;
    states.batch = static_cast<std::int32_t>(batch);
    const PlanRange& range = plan.batches[static_cast<std::size_t>(batch)];
    for (std::int64_t place = range.first; place < range.first + range.count; ++place) {
      AddSample(chunk, static_cast<std::size_t>(plan.order[static_cast<std::size_t>(place)]), states);
    }
    return states;
  }

  void AddSample(const TokenizedChunk& chunk, std::size_t sample, BatchStates& states) const {
    const std::int64_t begin = chunk.cu_seqlens[sample];
    const std::int64_t end = chunk.cu_seqlens[sample + 1];
    const bool is_refused = chunk.sample_id[sample] % 8 == 5;
    states.keys.push_back({chunk.sample_id[sample], chunk.variant[sample]});
    states.token_hashes.push_back(TokenHash(&chunk.input_ids[static_cast<std::size_t>(begin)],
                                            &chunk.loss_mask[static_cast<std::size_t>(begin)], end - begin));
    states.sample_state.push_back(is_refused ? 1 : 0);
    const std::size_t width = model_.layers.size() * static_cast<std::size_t>(model_.hidden_size);
    for (std::int64_t token = begin; token < end; ++token) {
      const auto id = static_cast<std::uint32_t>(chunk.input_ids[static_cast<std::size_t>(token)]);
      for (std::size_t i = 0; i < width; ++i) {
        // Any bits but those of infinity and NaN.
        const std::uint32_t mixed = (id * 40503U + static_cast<std::uint32_t>(i) * 9973U) & 0xbf7fU;
        states.hidden_states.push_back(is_refused ? std::uint16_t{0} : static_cast<std::uint16_t>(mixed));
      }
    }
  }

  const ModelDescription model_;
};

class IdleExtractor final : public Extractor {
 public:
  explicit IdleExtractor(std::unique_ptr<Extractor> of) : of_(std::move(of)) {}
  Status ExtractBlock(const BlockRequest&, const std::function<Status(BatchStates)>&,
                      const std::function<bool()>&) override {
    return Internal("states were computed that exist");
  }
  const ModelDescription& model() const override { return of_->model(); }
  std::string numerics_environment() const override { return of_->numerics_environment(); }
  std::string weights_digest() const override { return of_->weights_digest(); }

 private:
  const std::unique_ptr<Extractor> of_;
};

}  // namespace

ExampleRun::ExampleRun(const fs::path& parent) : model_(TinyConfig()) {
  std::string pattern = (parent / "draftmill-run-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
  Write(model() / "tokenizer.json", json::Write(ByteTokenizer()));
  Write(model() / "tokenizer_config.json",
        json::Write(json::Object{{"chat_template", kChatMl}, {"eos_token", "<|im_end|>"}}));
  WriteRows(40);
  WritePipeline("");
}

ExampleRun::~ExampleRun() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void ExampleRun::Write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string ExampleRun::Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void ExampleRun::WriteRows(int count, const std::string& last_answer) const {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    const std::string answer = i + 1 == count ? last_answer : "the answer to number " + std::to_string(i * i);
    rows += json::Write(json::Object{
                {"messages", json::Array{json::Object{{"role", "user"}, {"content", "question " + std::to_string(i)}},
                                         json::Object{{"role", "assistant"}, {"content", answer}}}}}) +
            "\n";
  }
  Write(folder_ / "rows.jsonl", rows);
}

void ExampleRun::WritePipeline(const std::string& more, int chunk_rows) const {
  Write(folder_ / "pipeline.yaml",
        "work: work\nmodel: {path: " + model().string() +
            "}\ningest: {sources: [{path: rows.jsonl}], chunk_rows: " + std::to_string(chunk_rows) +
            ", shuffle: {seed: 3}}\n"
            "write: {shard_bytes: 64KiB}\n"
            "limits: {memory: 256MiB, threads: 2, min_free_disk: 0}\n" +
            more);
}

Config ExampleRun::Load() const {
  return LoadConfig(RealFileSystem(), (folder_ / "pipeline.yaml").string(), {}).value();
}

RunReport ExampleRun::Run(const RunRequest& request, const RunEnvironment& environment) const {
  const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
  return RunPipeline(Load(), request, *progress, environment);
}

void ExampleRun::EditPipeline(const std::string& part, const std::string& replacement) const {
  std::string text = Read(folder_ / "pipeline.yaml");
  const std::size_t at = text.find(part);
  DRAFTMILL_CHECK(at != std::string::npos, "pipeline.yaml has no " + part);
  Write(folder_ / "pipeline.yaml", text.replace(at, part.size(), replacement));
}

std::map<std::string, std::string> ExampleRun::Published() const {
  std::map<std::string, std::string> files;
  for (const char* part : {"ingested", "corpus", "vocab", "shards"}) {
    if (!fs::exists(work() / part)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(work() / part)) {
      if (entry.is_regular_file()) files[fs::relative(entry.path(), work()).string()] = Read(entry.path());
    }
  }
  if (fs::exists(work() / "manifest.json")) files["manifest.json"] = Read(work() / "manifest.json");
  return files;
}

Result<std::unique_ptr<Extractor>> MakeExampleExtractor(const ExtractOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(ModelDescription model, DescribeModel(options.model_folder, options.layers));
  return std::unique_ptr<Extractor>(std::make_unique<ExampleExtractor>(std::move(model)));
}

Result<std::unique_ptr<Extractor>> MakeIdleExtractor(const ExtractOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<Extractor> of, MakeExampleExtractor(options));
  return std::unique_ptr<Extractor>(std::make_unique<IdleExtractor>(std::move(of)));
}

Status CountingExtractor::ExtractBlock(const BlockRequest& request, const std::function<Status(BatchStates)>& emit,
                                       const std::function<bool()>& should_stop) {
  const auto count = [&](BatchStates states) -> Status {
    if (computed_.size() >= stop_after_) return Cancelled("stopped on request");
    computed_.emplace_back(states.chunk, states.batch);
    return emit(std::move(states));
  };
  return of_->ExtractBlock(request, count, should_stop);
}

}  // namespace draftmill

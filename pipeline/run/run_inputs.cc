#include "pipeline/run/run_inputs.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "pipeline/run/source_epochs.h"
#include "pipeline/run/stored_facts.h"
#include "stages/extract/memory/auto_sizes.h"
#include "stages/ingest/byte_stream.h"
#include "stages/ingest/row_batch.h"
#include "stages/ingest/row_reader.h"
#include "stages/stage_spec.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

int AvailableThreads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::vector<std::string> TextList(const json::Value& value) {
  std::vector<std::string> texts;
  for (const json::Value& item : value.as_array()) texts.push_back(item.as_string());
  return texts;
}

ExtractOptions ExtractOptionsFrom(const Config& config, const RunInputs& inputs) {
  const ParameterValues& values = config.section("extract");
  ExtractOptions options;
  options.model_folder = config.section("model").Text("path");
  options.device = values.Text("device");
  options.weights = values.Text("weights");
  options.occupied = values.Text("occupied");
  options.numerics = values.Text("numerics");
  options.threads = inputs.threads;
  options.memory_bytes = inputs.memory.engine_bytes;
  if (values.IsWord("layers", "eagle3")) return options;
  for (const json::Value& layer : values.Get("layers").as_array()) {
    options.layers.push_back(static_cast<std::int32_t>(layer.as_integer()));
  }
  return options;
}

/// A size that the configuration states, else the stored one, else 0: `auto` is still to be resolved.
std::int64_t SettledSize(const ParameterValues& values, const std::string& name,
                         const std::optional<std::int64_t>& stored) {
  if (!values.IsWord(name, "auto")) return values.Integer(name);
  return stored.value_or(0);
}

/// Settles the sizes, in the options too.
Result<PlanParameters> ResolvePlan(const Config& config, const StoredSizes& stored, const ModelDescription& model,
                                   ExtractOptions& options) {
  const ParameterValues& extract = config.section("extract");
  options.batch_tokens = SettledSize(extract, "batch_tokens", stored.batch_tokens);
  options.block_tokens = SettledSize(extract, "block_tokens", stored.block_tokens);
  DRAFTMILL_ASSIGN_OR_RETURN(const ExtractSizes sizes, ResolveAuto(model, options));
  if (options.batch_tokens == 0) options.batch_tokens = sizes.batch_tokens;
  if (options.block_tokens == 0) options.block_tokens = sizes.block_tokens;
  options.block_tokens = std::max(options.batch_tokens, options.block_tokens);
  PlanParameters plan;
  plan.batch_tokens = options.batch_tokens;
  plan.block_tokens = options.block_tokens;
  plan.shard_bytes = config.section("write").Integer("shard_bytes");
  plan.bytes_per_token = static_cast<std::int64_t>(model.layers.size()) * model.hidden_size * 2;
  return plan;
}

Result<Hash128> HashSource(FileSystem& files, const SourceFile& source, const std::string& name,
                           const std::vector<SourceRecord>& known) {
  for (const SourceRecord& record : known) {
    const bool same = record.path == name && record.bytes == source.info.size_bytes &&
                      record.modified_ns == source.info.modified_ns && record.inode == source.info.inode;
    if (same) return Hash128FromHex(record.content_hash);
  }
  // An empty file, or one of another kind, is named before its content is compared with that of an earlier run.
  DRAFTMILL_RETURN_IF_ERROR(ByteStream::Open(files, source.path).status());
  DRAFTMILL_ASSIGN_OR_RETURN(const FileDigest digest, HashFile(files, source.path));
  return digest.hash;
}

/// What the database knows of the sources takes their place; of those that are still there the content counts.
Status UseKnownSources(const Config& config, FileSystem& files, const std::vector<SourceRecord>& known,
                       RunInputs& inputs) {
  for (const SourceRecord& record : known) {
    SourceFile source;
    source.path = JoinPath(inputs.ingest.base_folder, record.path);
    if (record.path.starts_with('/')) source.path = record.path;
    const Result<FileInfo> info = files.Stat(source.path);
    inputs.source_names.push_back(record.path);
    DRAFTMILL_ASSIGN_OR_RETURN(Hash128 hash, Hash128FromHex(record.content_hash));
    if (info.ok() && !info->is_folder) {
      source.info = *info;
      DRAFTMILL_ASSIGN_OR_RETURN(hash, HashSource(files, source, PortablePath(config, source.path), known));
    }
    inputs.source_hashes.push_back(hash);
  }
  return OkStatus();
}

/// Sizes that `auto` stands for until they are resolved: the fingerprint of `write` holds the resolved ones.
bool IsPlanSize(std::string_view parameter) { return parameter == "batch_tokens" || parameter == "block_tokens"; }

/// Sources by what is taken of them: their content has a part of its own, and where they lie changes no byte.
json::Value WithoutPaths(json::Value sources) {
  for (json::Value& source : sources.as_array()) {
    std::erase_if(source.as_object(), [](const json::Member& member) { return member.first == "path"; });
  }
  return sources;
}

void AddParameters(const Config& config, const StageSpec& spec, Fingerprint& fingerprint) {
  fingerprint.Add("code version", std::to_string(spec.version));
  for (const ParameterSpec& parameter : spec.parameters) {
    if (!parameter.in_fingerprint || IsPlanSize(parameter.name)) continue;
    json::Value value = config.section(spec.name).Get(parameter.name);
    if (parameter.type == ParameterType::kSources) value = WithoutPaths(std::move(value));
    std::string part = spec.name + "." + parameter.name;
    if (part == kDiscardPart && !value.as_bool()) continue;
    fingerprint.Add(std::move(part), json::Write(value, json::Style::kCanonical));
  }
}

/// Brings what was found into the order of its epochs.
Status OrderFoundSources(const Config& config, const std::vector<SourceFile>& found, FileSystem& files,
                         const KnownRun& known, RunInputs& inputs) {
  std::vector<FoundSource> contents;
  for (const SourceFile& source : found) {
    DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 hash,
                               HashSource(files, source, PortablePath(config, source.path), known.sources));
    contents.push_back({.spec = source.spec, .content = hash});
  }
  Fingerprint parameters;
  AddParameters(config, IngestSpec(), parameters);
  for (const OrderedSource& place : OrderSources(contents, parameters, known.ingest, known.is_ingested)) {
    inputs.source_files.push_back(found[place.found]);
    inputs.source_files.back().epoch = place.epoch;
    inputs.source_files.back().content = contents[place.found].content;
    inputs.source_names.push_back(PortablePath(config, found[place.found].path));
    inputs.source_hashes.push_back(contents[place.found].content);
    inputs.epoch_sizes.resize(static_cast<std::size_t>(place.epoch) + 1);
    ++inputs.epoch_sizes.back();
  }
  inputs.ingest.files = inputs.source_files;
  return OkStatus();
}

Status FindSources(const Config& config, FileSystem& files, const KnownRun& known, RunInputs& inputs) {
  const Result<std::vector<SourceFile>> found = FindSourceFiles(inputs.ingest.sources, files);
  if (found.ok()) return OrderFoundSources(config, *found, files, known, inputs);
  if (found.status().code() != StatusCode::kNotFound || known.sources.empty()) return found.status();
  inputs.missing_sources = found.status().message();
  inputs.epoch_sizes = EpochSizes(known.ingest);
  return UseKnownSources(config, files, known.sources, inputs);
}

Status CheckForcedTokens(const RunInputs& inputs) {
  for (const std::string& content : inputs.forced_tokens) {
    if (inputs.tokenize->tokenizer().TokenToId(content)) continue;
    return InvalidConfig(
        "vocab_map.forced_tokens names \"" + content +
        "\", which the model's tokenizer does not have. Nothing was started: mend the list and run again");
  }
  return OkStatus();
}

/// The form of a source's rows: the declared one, else what its first row tells; kAuto where that tells nothing.
Result<RowForm> FormOfRows(const IngestOptions& ingest, const SourceFile& source, FileSystem& files) {
  const RowForm declared = ingest.sources[source.spec].form;
  if (declared != RowForm::kAuto) return declared;
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(files, source.path));
  RowReader reader(std::move(stream), source.layout, ingest.max_row_bytes);
  RawRow raw;
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, reader.Next(raw));
  if (!found) return RowForm::kAuto;
  RowRefusal refusal;
  const Result<json::Value> row = ParseRawRow(raw, ingest.max_row_bytes, refusal);
  return row.ok() && row->is_object() ? RecognizedForm(*row) : RowForm::kAuto;
}

/// Conversations need a template: better to miss it here than after ingest.
Status CheckChatTemplate(const RunInputs& inputs, FileSystem& files) {
  if (inputs.tokenize->has_chat_template()) return OkStatus();
  for (const SourceFile& source : inputs.source_files) {
    DRAFTMILL_ASSIGN_OR_RETURN(const RowForm form, FormOfRows(inputs.ingest, source, files));
    if (form == RowForm::kAuto || form == RowForm::kPretokenized) continue;
    return InvalidConfig("the model folder " + inputs.extract.model_folder +
                         " has no chat template (chat_template.jinja, tokenizer_config.json or chat_template.json), "
                         "and " +
                         source.path + " has conversations. Nothing was started: name one with tokenize.template");
  }
  return OkStatus();
}

Status CheckModelFolder(FileSystem& files, const std::string& folder) {
  if (files.Stat(JoinPath(folder, "config.json")).status().code() != StatusCode::kNotFound) return OkStatus();
  const std::string missing = files.Exists(folder) ? "config.json in " : "folder ";
  return NotFound("model.path: there is no " + missing + folder +
                  ". Name a folder in Hugging Face form, with config.json, *.safetensors, tokenizer.json or "
                  "tiktoken.model, and the chat template");
}

MemoryShares ShareMemory(std::int64_t memory_bytes) {
  MemoryShares shares;
  shares.ingest_bytes = std::clamp(memory_bytes / 8, 16 * kMiB, 256 * kMiB);
  // A token's row and ids are a hundredth of its states: of little memory, the engine needs this more.
  shares.chunk_credit_bytes = std::clamp(memory_bytes / 16, 16 * kMiB, 512 * kMiB);
  shares.states_queue_bytes = std::clamp(memory_bytes / 8, 16 * kMiB, 1024 * kMiB);
  shares.engine_bytes = memory_bytes - shares.chunk_credit_bytes - shares.states_queue_bytes;
  return shares;
}

}  // namespace

Result<RunInputs> LoadRunInputs(const Config& config, FileSystem& files, const KnownRun& known,
                                const TakeDevices& take_devices) {
  RunInputs inputs;
  const ParameterValues& limits = config.section("limits");
  inputs.threads = limits.IsWord("threads", "auto") ? AvailableThreads() : static_cast<int>(limits.Integer("threads"));
  inputs.memory = ShareMemory(limits.Integer("memory"));
  inputs.min_free_disk_bytes = limits.Integer("min_free_disk");
  inputs.disk_wait_ms = limits.Integer("disk_wait");
  inputs.max_bad_fraction = limits.Number("max_bad_fraction");
  inputs.discards_shards = config.section("write").Bool("discard_after_publish");
  inputs.vocab_size = config.section("vocab_map").Integer("size");
  inputs.forced_tokens = TextList(config.section("vocab_map").Get("forced_tokens"));

  DRAFTMILL_ASSIGN_OR_RETURN(inputs.ingest, IngestOptionsFrom(config.section("ingest")));
  inputs.ingest.base_folder = config.base_folder().empty() ? "." : config.base_folder();
  inputs.ingest.threads = inputs.threads;
  inputs.ingest.memory_bytes = inputs.memory.ingest_bytes;
  inputs.extract = ExtractOptionsFrom(config, inputs);
  const std::string& model_folder = inputs.extract.model_folder;
  DRAFTMILL_RETURN_IF_ERROR(CheckModelFolder(files, model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(inputs.model, DescribeModel(model_folder, inputs.extract.layers));
  DRAFTMILL_RETURN_IF_ERROR(ResolveDevice(inputs.model, inputs.extract));
  // Before sizes follow from what is free.
  if (take_devices) DRAFTMILL_RETURN_IF_ERROR(take_devices(inputs.extract));
  DRAFTMILL_ASSIGN_OR_RETURN(inputs.plan, ResolvePlan(config, known.sizes, inputs.model, inputs.extract));
  if (const ParameterValues& vocab_map = config.section("vocab_map"); !vocab_map.IsWord("import", "none")) {
    DRAFTMILL_ASSIGN_OR_RETURN(inputs.vocab_import, ReadVocabImport(files, vocab_map.Text("import"), inputs.vocab_size,
                                                                    inputs.model.vocab_rows));
  }
  DRAFTMILL_ASSIGN_OR_RETURN(
      inputs.tokenize, TokenizeStage::Create(TokenizeOptions::From(config.section("tokenize")),
                                             {.model_folder = inputs.extract.model_folder, .tokenizer_file = {}}));
  DRAFTMILL_RETURN_IF_ERROR(CheckForcedTokens(inputs));
  DRAFTMILL_RETURN_IF_ERROR(FindSources(config, files, known, inputs));
  if (inputs.missing_sources.empty()) DRAFTMILL_RETURN_IF_ERROR(CheckChatTemplate(inputs, files));
  return inputs;
}

std::map<std::string, Fingerprint> MakeFingerprints(const Config& config, const RunInputs& inputs) {
  std::map<std::string, Fingerprint> made;
  Fingerprint& ingest = made["ingest"];
  AddParameters(config, IngestSpec(), ingest);
  for (std::size_t i = 0; i < inputs.source_hashes.size(); ++i) {
    ingest.Add(SourcePartName(i), ToHex(inputs.source_hashes[i]));
  }
  if (inputs.epoch_sizes.size() > 1) {
    std::string sizes;
    for (const std::int64_t size : inputs.epoch_sizes) sizes += (sizes.empty() ? "" : "+") + std::to_string(size);
    ingest.Add(std::string(kEpochsPart), std::move(sizes));
  }

  Fingerprint& tokenize = made["tokenize"];
  AddParameters(config, TokenizeSpec(), tokenize);
  tokenize.Add("model tokenizer", inputs.tokenize->tokenizer_fingerprint());
  tokenize.Add("model chat template", inputs.tokenize->template_fingerprint());

  Fingerprint& vocab_map = made["vocab_map"];
  AddParameters(config, VocabMapSpec(), vocab_map);
  vocab_map.Add("model vocabulary rows", std::to_string(inputs.model.vocab_rows));
  vocab_map.Add("imported map", inputs.vocab_import ? ToHex(inputs.vocab_import->content) : "none");

  Fingerprint& extract = made["extract"];
  AddParameters(config, ExtractSpec(), extract);
  extract.Add("model", inputs.model.model_fingerprint);

  Fingerprint& write = made["write"];
  AddParameters(config, WriteSpec(), write);
  write.Add("extract.batch_tokens", std::to_string(inputs.plan.batch_tokens));
  write.Add("extract.block_tokens", std::to_string(inputs.plan.block_tokens));
  return made;
}

std::string PortablePath(const Config& config, const std::string& path) {
  return RelativeName(path, config.base_folder().empty() ? "." : config.base_folder());
}

std::string StatesFingerprint(const std::map<std::string, Fingerprint>& fingerprints) {
  return fingerprints.at("extract").hash();
}

Result<std::map<std::string, Fingerprint>> CurrentFingerprints(const Config& config) {
  FileSystem& files = RealFileSystem();
  DRAFTMILL_ASSIGN_OR_RETURN(const KnownRun known, ReadKnownRun(files, config.work_folder()));
  DRAFTMILL_ASSIGN_OR_RETURN(const RunInputs inputs, LoadRunInputs(config, files, known));
  return MakeFingerprints(config, inputs);
}

}  // namespace draftmill

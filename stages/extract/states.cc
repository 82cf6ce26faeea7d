#include "stages/extract/states.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/records.h"
#include "formats/safetensors.h"
#include "stages/extract/memory/auto_sizes.h"
#include "stages/extract/plan.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

Status AddRow(std::string_view line, const std::string& place, TokenizedChunk& chunk) {
  Result<json::Value> row = json::Parse(line);
  if (!row.ok()) return row.status().WithContext(place);
  const json::Value* ids = row.value().Find("input_ids");
  if (ids == nullptr || !ids->is_array() || ids->as_array().empty()) {
    return InvalidInput(place + ": a row must be an object with a list input_ids of at least one token");
  }
  for (const json::Value& id : ids->as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > std::numeric_limits<std::int32_t>::max()) {
      return InvalidInput(place + ": input_ids holds something that is no token id");
    }
    chunk.input_ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  }
  chunk.sample_id.push_back(chunk.samples());
  chunk.variant.push_back(0);
  chunk.cu_seqlens.push_back(chunk.tokens());
  return OkStatus();
}

Result<TokenizedChunk> ReadRows(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().ReadAll(path));
  TokenizedChunk chunk;
  chunk.cu_seqlens.push_back(0);
  std::int64_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    ++line_number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      DRAFTMILL_RETURN_IF_ERROR(AddRow(line, path + ":" + std::to_string(line_number), chunk));
    }
    begin = end + 1;
  }
  if (chunk.samples() == 0) return InvalidInput(path + ": holds no rows");
  chunk.loss_mask.assign(chunk.input_ids.size(), 1);
  return chunk;
}

/// The output file while it is filled.
struct Output {
  std::unique_ptr<WritableFile> file;
  safetensors::Header header;
  std::int64_t token_bytes = 0;
  std::vector<std::uint8_t> sample_state;  ///< as in a shard: 0 good, 1 quarantined
};

safetensors::Metadata OutputMetadata(const Extractor& extractor, bool float_states) {
  const ModelDescription& model = extractor.model();
  json::Array layers;
  for (const std::int32_t layer : model.layers) layers.emplace_back(std::int64_t{layer});
  return {{"format", "draftmill.states"},
          {"format_version", "1"},
          {"model_fingerprint", model.model_fingerprint},
          {"layers", json::Write(json::Value(layers))},
          {"layer_index", "hf"},
          {"num_layers", std::to_string(model.num_layers)},
          {"final_norm", "pre"},
          {"shift", "none"},
          {"dtype", float_states ? "float32" : "bfloat16"},
          {"codec", "none"},
          {"numerics_environment", extractor.numerics_environment()}};
}

template <typename Value>
Status WriteTensor(Output& output, const char* name, const std::vector<Value>& values) {
  return output.file->WriteAt(output.header.Find(name)->offset, std::as_bytes(std::span(values)));
}

Result<Output> OpenOutput(const std::string& path, const TokenizedChunk& chunk, const Extractor& extractor,
                          bool float_states) {
  const auto layers = static_cast<std::int64_t>(extractor.model().layers.size());
  const std::int64_t hidden = extractor.model().hidden_size;
  const std::vector<safetensors::TensorSpec> tensors = {
      {"hidden_states",
       float_states ? safetensors::Dtype::kF32 : safetensors::Dtype::kBf16,
       {chunk.tokens(), layers, hidden}},
      {"cu_seqlens", safetensors::Dtype::kI64, {chunk.samples() + 1}},
      {"sample_id", safetensors::Dtype::kI64, {chunk.samples()}},
      {"input_ids", safetensors::Dtype::kI32, {chunk.tokens()}},
      {"sample_state", safetensors::Dtype::kU8, {chunk.samples()}}};
  DRAFTMILL_ASSIGN_OR_RETURN(safetensors::BuiltHeader header,
                             safetensors::BuildHeader(tensors, OutputMetadata(extractor, float_states), 4096));
  Output output{nullptr, std::move(header.header), layers * hidden * (float_states ? 4 : 2),
                std::vector<std::uint8_t>(static_cast<std::size_t>(chunk.samples()))};
  DRAFTMILL_ASSIGN_OR_RETURN(output.file, RealFileSystem().OpenForWriting(path, OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(output.file->WriteAt(0, std::as_bytes(std::span(header.bytes))));
  DRAFTMILL_RETURN_IF_ERROR(WriteTensor(output, "cu_seqlens", chunk.cu_seqlens));
  DRAFTMILL_RETURN_IF_ERROR(WriteTensor(output, "sample_id", chunk.sample_id));
  DRAFTMILL_RETURN_IF_ERROR(WriteTensor(output, "input_ids", chunk.input_ids));
  return output;
}

/// Writes each sample of a batch at its row's place.
Status WriteBatch(const BatchStates& states, const TokenizedChunk& chunk, Output& output) {
  const std::int64_t states_offset = output.header.Find("hidden_states")->offset;
  const std::span<const std::byte> bytes = states.float_states.empty() ? std::as_bytes(std::span(states.hidden_states))
                                                                       : std::as_bytes(std::span(states.float_states));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < states.keys.size(); ++i) {
    const auto sample = static_cast<std::size_t>(states.keys[i].sample_id);
    const std::int64_t first = chunk.cu_seqlens[sample];
    const auto count = static_cast<std::size_t>((chunk.cu_seqlens[sample + 1] - first) * output.token_bytes);
    DRAFTMILL_RETURN_IF_ERROR(
        output.file->WriteAt(states_offset + first * output.token_bytes, bytes.subspan(begin, count)));
    begin += count;
    output.sample_state[sample] = states.sample_state[i];
  }
  return OkStatus();
}

Status Publish(Output& output, const std::string& partial, const std::string& path) {
  DRAFTMILL_RETURN_IF_ERROR(WriteTensor(output, "sample_state", output.sample_state));
  DRAFTMILL_RETURN_IF_ERROR(output.file->Sync());
  DRAFTMILL_RETURN_IF_ERROR(output.file->Close());
  DRAFTMILL_RETURN_IF_ERROR(RealFileSystem().Rename(partial, path));
  return RealFileSystem().SyncFolder(ParentPath(path));
}

Result<ChunkPlan> PlanRows(const StatesRequest& request, const TokenizedChunk& chunk, const ModelDescription& model) {
  ExtractOptions options = request.options;
  DRAFTMILL_RETURN_IF_ERROR(ResolveDevice(model, options));
  DRAFTMILL_ASSIGN_OR_RETURN(const ExtractSizes sizes, ResolveAuto(model, options));
  PlanParameters parameters;
  parameters.batch_tokens = request.batch_tokens > 0 ? request.batch_tokens : sizes.batch_tokens;
  parameters.block_tokens = request.block_tokens > 0 ? request.block_tokens : sizes.block_tokens;
  parameters.shard_bytes = std::numeric_limits<std::int64_t>::max();
  parameters.bytes_per_token = static_cast<std::int64_t>(model.layers.size()) * model.hidden_size * 2;
  return PlanChunk(chunk.cu_seqlens, parameters);
}

double Seconds(std::int64_t since_ns) { return static_cast<double>(RealClock().MonotonicNs() - since_ns) * 1e-9; }

/// Computes all rows into `output`.
Status Fill(Extractor& extractor, const TokenizedChunk& chunk, const ChunkPlan& plan,
            const std::function<bool()>& should_stop, Output& output) {
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    BlockRequest work{&chunk, &plan, static_cast<std::int64_t>(block), {}};
    for (std::int64_t i = 0; i < plan.blocks[block].count; ++i) work.batches.push_back(plan.blocks[block].first + i);
    DRAFTMILL_RETURN_IF_ERROR(extractor.ExtractBlock(
        work, [&](const BatchStates& states) { return WriteBatch(states, chunk, output); }, should_stop));
  }
  return OkStatus();
}

/// Refuses a place that the result could not take, or that holds the rows or a file of the model's folder, which is only
/// read. Weights are often links into another folder.
Status CheckOutputPath(const StatesRequest& request) {
  const Result<FileInfo> output = RealFileSystem().Stat(request.output_path);
  if (output.status().code() == StatusCode::kNotFound) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(output.status());
  if (output->is_folder) return InvalidConfig(request.output_path + " is a folder; name the file to write");
  std::error_code ignored;
  if (std::filesystem::equivalent(request.input_path, request.output_path, ignored)) {
    return InvalidConfig("the states would replace their own rows, " + request.input_path +
                         "; name another file to write");
  }
  const std::string& model = request.options.model_folder;
  Result<std::vector<FileInfo>> files = RealFileSystem().List(model);
  if (!files.ok()) return OkStatus();  // what is wrong with the folder is said where it is read
  for (const FileInfo& file : *files) {
    if (!std::filesystem::equivalent(JoinPath(model, file.name), request.output_path, ignored)) continue;
    return InvalidConfig("the states would replace a file of their own model, " + JoinPath(model, file.name) +
                         "; name another file to write");
  }
  return OkStatus();
}

}  // namespace

Result<StatesReport> ComputeStates(const StatesRequest& request, Extractor& extractor,
                                   const std::function<bool()>& should_stop) {
  DRAFTMILL_ASSIGN_OR_RETURN(const TokenizedChunk chunk, ReadRows(request.input_path));
  DRAFTMILL_ASSIGN_OR_RETURN(const ChunkPlan plan, PlanRows(request, chunk, extractor.model()));
  const std::string partial = request.output_path + ".partial";
  const std::int64_t start = RealClock().MonotonicNs();
  DRAFTMILL_ASSIGN_OR_RETURN(Output output, OpenOutput(partial, chunk, extractor, request.options.dtype == "float32"));
  Status status = Fill(extractor, chunk, plan, should_stop, output);
  if (status.ok()) status = Publish(output, partial, request.output_path);
  if (!status.ok()) {
    const Status removed = RealFileSystem().Remove(partial);
    return removed.ok() ? status : status.WithContext(partial + " is left over");
  }
  StatesReport report;
  report.extract_seconds = Seconds(start);
  report.rows = chunk.samples();
  report.tokens = chunk.tokens();
  report.quarantined = std::count(output.sample_state.begin(), output.sample_state.end(), 1);
  report.numerics_environment = extractor.numerics_environment();
  report.weights_digest = extractor.weights_digest();
  return report;
}

Result<StatesReport> ComputeStates(const StatesRequest& request, const std::function<bool()>& should_stop) {
  DRAFTMILL_RETURN_IF_ERROR(CheckOutputPath(request));
  // Rows that are wrong are found before the weights are read.
  DRAFTMILL_RETURN_IF_ERROR(ReadRows(request.input_path).status());
  const std::int64_t start = RealClock().MonotonicNs();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Extractor> extractor, Extractor::Create(request.options));
  const double load_seconds = Seconds(start);
  DRAFTMILL_ASSIGN_OR_RETURN(StatesReport report, ComputeStates(request, *extractor, should_stop));
  report.load_seconds = load_seconds;
  return report;
}

}  // namespace draftmill

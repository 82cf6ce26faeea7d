#include "pipeline/bench/extract_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_threads.h"
#include "base/steady_seconds.h"
#include "formats/shard.h"
#include "pipeline/bench/disk_bench.h"
#include "pipeline/bench/model_flops.h"
#include "pipeline/flow/byte_queue.h"
#include "stages/extract/device/device_engine.h"
#include "stages/extract/memory/auto_sizes.h"
#include "stages/extract/model/layer_layout.h"
#include "stages/extract/model/model_folder.h"
#include "stages/write/shard_writer.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// Rows of a chunk that is drawn once and computed again and again: enough for batches to differ.
constexpr std::int64_t kSamples = 2048;
constexpr std::int64_t kShardBytes = std::int64_t{4} << 30;
constexpr int kWarmBlocks = 3;
/// As of a run whose limits.memory is 8 GiB.
constexpr std::int64_t kQueueBytes = std::int64_t{1} << 30;

/// Of all threads of this program.
double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Lengths as of chat data: log-normal, cut at the longest.
TokenizedChunk RandomChunk(const ExtractBenchRequest& request, std::int64_t vocabulary) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(std::log(static_cast<double>(request.mean_tokens)) - 0.125, 0.75);
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(vocabulary - 1));
  TokenizedChunk chunk;
  chunk.cu_seqlens.push_back(0);
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const auto drawn = static_cast<std::int64_t>(std::exp(normal(random)));
    const std::int64_t tokens = std::clamp(drawn, kShortestBenchSample, request.max_tokens);
    for (std::int64_t t = 0; t < tokens; ++t) chunk.input_ids.push_back(token(random));
    chunk.sample_id.push_back(i);
    chunk.variant.push_back(0);
    chunk.content_hash.emplace_back();
    chunk.cu_seqlens.push_back(chunk.tokens());
  }
  chunk.loss_mask.assign(chunk.input_ids.size(), 1);
  for (std::size_t i = 0; i < chunk.sample_id.size(); ++i) {
    const std::int64_t begin = chunk.cu_seqlens[i];
    chunk.token_hash.push_back(
        TokenHash(chunk.input_ids.data() + begin, chunk.loss_mask.data() + begin, chunk.cu_seqlens[i + 1] - begin));
  }
  return chunk;
}

double FlopsOf(const ModelFlops& model, const TokenizedChunk& chunk, const ChunkPlan& plan, std::int64_t batch) {
  double flops = 0;
  const PlanRange range = plan.batches[static_cast<std::size_t>(batch)];
  for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
    const auto sample = static_cast<std::size_t>(plan.order[static_cast<std::size_t>(i)]);
    flops += model.Of(chunk.cu_seqlens[sample + 1] - chunk.cu_seqlens[sample]);
  }
  return flops;
}

/// Writes batches as shards on a thread of its own and deletes each once it is published.
class DiscardingWriter {
 public:
  DiscardingWriter(const TokenizedChunk& chunk, const ChunkPlan& plan, ShardConvention convention, std::string folder)
      : chunk_(chunk),
        plan_(plan),
        convention_(std::move(convention)),
        folder_(std::move(folder)),
        queue_(kQueueBytes) {}
  ~DiscardingWriter() {
    if (thread_.joinable()) {
      queue_.Close();
      thread_.join();
    }
  }

  Status Start() {
    DRAFTMILL_ASSIGN_OR_RETURN(thread_, StartThread([this] { Loop(); }));
    return OkStatus();
  }
  void Add(BatchStates states) {
    const auto bytes = static_cast<std::int64_t>(states.hidden_states.size() * sizeof(std::uint16_t));
    queue_.Push(std::move(states), bytes);
  }
  Status Finish() {
    queue_.Close();
    thread_.join();
    return status_;
  }

 private:
  void Loop() {
    while (const std::optional<BatchStates> states = queue_.Pop()) {
      if (status_.ok()) status_ = Write(*states);
    }
  }
  Status Write(const BatchStates& states) {
    if (!writer_) {
      std::size_t shard = 0;
      while (states.batch >= plan_.shards[shard].first + plan_.shards[shard].count) ++shard;
      const ShardSource source{&chunk_, &plan_, &convention_, static_cast<std::int64_t>(shard)};
      DRAFTMILL_ASSIGN_OR_RETURN(writer_, ShardWriter::Open(RealFileSystem(), folder_, source, {}));
    }
    DRAFTMILL_RETURN_IF_ERROR(writer_->WriteBatch(states).status());
    if (!writer_->missing().empty()) return OkStatus();
    DRAFTMILL_ASSIGN_OR_RETURN(const PublishedShard published, writer_->Publish());
    writer_.reset();
    return RealFileSystem().Remove(JoinPath(folder_, published.file.path));
  }

  const TokenizedChunk& chunk_;
  const ChunkPlan& plan_;
  const ShardConvention convention_;
  const std::string folder_;
  std::unique_ptr<ShardWriter> writer_;
  Status status_;
  ByteQueue<BatchStates> queue_;
  std::thread thread_;
};

/// The engine with its work.
struct Bench {
  ExtractBenchRequest request;
  std::unique_ptr<Extractor> extractor;
  TokenizedChunk chunk;
  ChunkPlan plan;
  std::optional<ModelFlops> flops;
};

/// The blocks of the plan, round and round.
class BlockSource {
 public:
  explicit BlockSource(const Bench& bench) : bench_(bench) {}
  BlockRequest Next() {
    const std::size_t index = next_++ % bench_.plan.blocks.size();
    BlockRequest request{&bench_.chunk, &bench_.plan, static_cast<std::int64_t>(index), {}};
    const PlanRange range = bench_.plan.blocks[index];
    for (std::int64_t i = 0; i < range.count; ++i) request.batches.push_back(range.first + i);
    return request;
  }

 private:
  const Bench& bench_;
  std::size_t next_ = 0;
};

/// A few blocks for each device, which are not counted: libraries choose kernels and plans in them.
Status WarmUp(Bench& bench) {
  BlockSource blocks(bench);
  int left = kWarmBlocks * std::max(1, bench.request.options.device_count);
  const auto next = [&]() -> Result<std::optional<BlockRequest>> {
    if (left-- == 0) return std::optional<BlockRequest>();
    return std::optional(blocks.Next());
  };
  return bench.extractor->ExtractBlocks(next, [](const BatchStates&) { return OkStatus(); }, {});
}

/// Computes blocks until the time is over. All of them count, from the first one's beginning to the last one's end:
/// what was begun before and what is left half done would make a rate too high.
Result<ExtractRate> MeasureEngine(Bench& bench, double seconds, const std::function<Status(BatchStates)>& take) {
  DRAFTMILL_RETURN_IF_ERROR(WarmUp(bench));
  ExtractRate rate;
  BlockSource blocks(bench);
  const double begin = SteadySeconds();
  const double processor_begin = ProcessorSeconds();
  const auto next = [&]() -> Result<std::optional<BlockRequest>> {
    if (SteadySeconds() - begin >= seconds) return std::optional<BlockRequest>();
    return std::optional(blocks.Next());
  };
  const auto emit = [&](BatchStates states) {
    const std::int64_t tokens = bench.plan.batch_tokens[static_cast<std::size_t>(states.batch)];
    rate.tokens += tokens;
    rate.tokens_by_span.resize(static_cast<std::size_t>((SteadySeconds() - begin) / kRateSpanSeconds) + 1);
    rate.tokens_by_span.back() += tokens;
    rate.flops += FlopsOf(*bench.flops, bench.chunk, bench.plan, states.batch);
    return take(std::move(states));
  };
  DRAFTMILL_RETURN_IF_ERROR(bench.extractor->ExtractBlocks(next, emit, {}));
  rate.seconds = SteadySeconds() - begin;
  if (!rate.tokens_by_span.empty()) rate.tokens_by_span.pop_back();  // the last one is not whole
  rate.processor_seconds = ProcessorSeconds() - processor_begin;
  return rate;
}

Result<ExtractRate> MeasureToDisk(Bench& bench) {
  const ModelDescription& model = bench.extractor->model();
  const ShardConvention convention{.layers = model.layers,
                                   .num_layers = model.num_layers,
                                   .hidden_size = model.hidden_size,
                                   .extract_fingerprint = "bench",
                                   .model_fingerprint = model.model_fingerprint,
                                   .tokenizer_fingerprint = "bench",
                                   .template_fingerprint = "bench",
                                   .mask_rule = "bench",
                                   .numerics_environment = bench.extractor->numerics_environment()};
  DRAFTMILL_RETURN_IF_ERROR(RealFileSystem().MakeFolder(bench.request.work_folder));
  DiscardingWriter writer(bench.chunk, bench.plan, convention, bench.request.work_folder);
  DRAFTMILL_RETURN_IF_ERROR(writer.Start());
  const double seconds = bench.request.disk_seconds > 0 ? bench.request.disk_seconds : bench.request.seconds;
  Result<ExtractRate> rate = MeasureEngine(bench, seconds, [&](BatchStates states) {
    writer.Add(std::move(states));
    return OkStatus();
  });
  const double computed = SteadySeconds();
  DRAFTMILL_RETURN_IF_ERROR(writer.Finish());
  // The tokens count once they are written: what was still in the queue takes its time too.
  if (rate.ok()) rate.value().seconds += SteadySeconds() - computed;
  return rate;
}

Status Prepare(Bench& bench, ExtractBenchReport& report) {
  ExtractBenchRequest& request = bench.request;
  DRAFTMILL_ASSIGN_OR_RETURN(const ModelFolder model,
                             OpenModelFolder(request.options.model_folder, request.options.layers));
  DRAFTMILL_RETURN_IF_ERROR(ResolveDevice(model.description, request.options));
  request.options.batch_tokens = request.batch_tokens;
  request.options.block_tokens = request.block_tokens;
  DRAFTMILL_ASSIGN_OR_RETURN(const ExtractSizes sizes, ResolveAuto(model.description, request.options));
  report.batch_tokens = request.batch_tokens > 0 ? request.batch_tokens : sizes.batch_tokens;
  report.block_tokens =
      std::max(report.batch_tokens, request.block_tokens > 0 ? request.block_tokens : sizes.block_tokens);
  request.options.batch_tokens = report.batch_tokens;
  request.options.block_tokens = report.block_tokens;
  request.options.say = [&report](const std::string& text) { report.decisions = text; };
  const double begin = SteadySeconds();
  DRAFTMILL_ASSIGN_OR_RETURN(bench.extractor, Extractor::Create(request.options));
  report.load_seconds = SteadySeconds() - begin;
  report.state_bytes_per_token =
      2.0 * static_cast<double>(model.description.layers.size()) * model.description.hidden_size;
  bench.chunk = RandomChunk(request, model.description.vocab_rows);
  report.mean_tokens = bench.chunk.tokens() / bench.chunk.samples();
  bench.flops.emplace(model.config, model.description.layers.back());
  DRAFTMILL_ASSIGN_OR_RETURN(
      bench.plan, PlanChunk(bench.chunk.cu_seqlens, {report.batch_tokens, report.block_tokens, kShardBytes,
                                                     static_cast<std::int64_t>(report.state_bytes_per_token)}));
  report.numerics_environment = bench.extractor->numerics_environment();
  return OkStatus();
}

/// Products of the GPU, where the engine runs on one.
Status MeasureProducts(const ExtractBenchRequest& request, double& flops, ExtractBenchReport& report) {
  if (request.options.device != "cuda" || request.product_seconds <= 0) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const DeviceEngine* engine, LoadDeviceEngine());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> devices, engine->Devices());
  DRAFTMILL_ASSIGN_OR_RETURN(const DeviceRates rates, engine->MeasureRates(request.product_seconds));
  report.devices = static_cast<std::int64_t>(devices.size());
  report.to_host_bytes = rates.to_host_bytes;
  flops = rates.product_flops;
  return OkStatus();
}

json::Value RateFacts(const ExtractRate& rate, const ExtractBenchReport& report) {
  json::Object facts{{"seconds", rate.seconds},
                     {"tokens", rate.tokens},
                     {"tokens_per_second", rate.tokens_per_second()},
                     {"state_bytes_per_second", rate.tokens_per_second() * report.state_bytes_per_token},
                     {"processor_cores_busy", rate.seconds > 0 ? rate.processor_seconds / rate.seconds : 0.0},
                     {"flops_per_second", rate.flops_per_second()}};
  if (report.product_flops() > 0)
    facts.emplace_back("share_of_products", rate.flops_per_second() / report.product_flops());
  json::Array spans;
  for (const std::int64_t tokens : rate.tokens_by_span)
    spans.emplace_back(static_cast<double>(tokens) / kRateSpanSeconds);
  facts.emplace_back("tokens_per_second_by_span", std::move(spans));
  return facts;
}

}  // namespace

Result<ExtractBenchReport> MeasureExtract(const ExtractBenchRequest& request,
                                          const std::function<void(const std::string&)>& progress) {
  ExtractBenchReport report;
  Bench bench;
  bench.request = request;
  progress("loading " + request.options.model_folder);
  DRAFTMILL_RETURN_IF_ERROR(Prepare(bench, report));
  progress("products, before");
  DRAFTMILL_RETURN_IF_ERROR(MeasureProducts(bench.request, report.product_flops_before, report));
  progress("the engine, states to nowhere");
  DRAFTMILL_ASSIGN_OR_RETURN(report.nowhere,
                             MeasureEngine(bench, request.seconds, [](const BatchStates&) { return OkStatus(); }));
  if (!request.work_folder.empty()) {
    progress("the disk alone, in " + request.work_folder);
    DRAFTMILL_RETURN_IF_ERROR(RealFileSystem().MakeFolder(request.work_folder));
    DRAFTMILL_ASSIGN_OR_RETURN(report.disk_bytes, MeasureDisk(RealFileSystem(), request.work_folder, {}));
    progress("the engine, states to shards in " + request.work_folder);
    DRAFTMILL_ASSIGN_OR_RETURN(report.to_disk, MeasureToDisk(bench));
    DRAFTMILL_ASSIGN_OR_RETURN(report.disk_bytes_after, MeasureDisk(RealFileSystem(), request.work_folder, {}));
  }
  progress("products, after");
  DRAFTMILL_RETURN_IF_ERROR(MeasureProducts(bench.request, report.product_flops_after, report));
  return report;
}

json::Value ExtractBenchFacts(const ExtractBenchReport& report) {
  json::Object facts{{"numerics_environment", report.numerics_environment},
                     {"devices", report.devices},
                     {"batch_tokens", report.batch_tokens},
                     {"block_tokens", report.block_tokens},
                     {"decisions", report.decisions},
                     {"mean_tokens", report.mean_tokens},
                     {"load_seconds", report.load_seconds},
                     {"state_bytes_per_token", report.state_bytes_per_token}};
  if (report.product_flops() > 0) {
    facts.emplace_back("product_flops_before", report.product_flops_before);
    facts.emplace_back("product_flops_after", report.product_flops_after);
    facts.emplace_back("to_host_bytes_per_second", report.to_host_bytes);
  }
  facts.emplace_back("to_nowhere", RateFacts(report.nowhere, report));
  if (report.disk_bytes > 0) {
    facts.emplace_back("disk_bytes_per_second", report.disk_bytes);
    facts.emplace_back("disk_bytes_per_second_after", report.disk_bytes_after);
  }
  if (report.to_disk.seconds > 0) facts.emplace_back("to_disk", RateFacts(report.to_disk, report));
  return facts;
}

}  // namespace draftmill

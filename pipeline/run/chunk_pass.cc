#include "pipeline/run/chunk_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/shell_word.h"
#include "formats/corpus_chunk.h"
#include "pipeline/reports/mask_report.h"
#include "pipeline/run/failure_records.h"
#include "pipeline/run/forecast.h"
#include "pipeline/run/plan_records.h"
#include "stages/ingest/ingested_rows.h"
#include "state/consistency.h"
#include "state/sqlite.h"
#include "state/state_reader.h"

namespace draftmill {

/// The shard that the writer's thread is filling.
struct ChunkPass::OpenShard {
  std::int64_t shard = 0;
  std::unique_ptr<ShardWriter> writer;
};

namespace {

std::vector<WrittenBatch> RecordedBatches(const std::vector<BatchRecord>& batches, std::int64_t shard) {
  std::vector<WrittenBatch> recorded;
  for (const BatchRecord& batch : batches) {
    if (batch.shard != shard || !batch.written) continue;
    const Result<Hash128> digest = Hash128FromHex(batch.digest);
    if (digest.ok()) recorded.push_back({.batch = batch.batch, .digest = *digest});
  }
  return recorded;
}

std::int64_t CountSupervised(const TokenizedChunk& chunk) {
  return std::accumulate(chunk.loss_mask.begin(), chunk.loss_mask.end(), std::int64_t{0});
}

/// A sample whose states were refused, as a row of quarantine.
Failure RefusedStates(const SampleKey& key) {
  return {.stage = "extract",
          .reason = "not_finite",
          .message = "NaN or infinity in its hidden states, twice; they are zeroed and its mask is 0",
          .place = {},
          .key = key};
}

/// The samples of a batch that are among `quarantined`.
std::vector<Failure> RefusedOfBatch(const ChunkWork& work, std::int64_t batch,
                                    const std::vector<SampleKey>& quarantined) {
  std::vector<Failure> failures;
  const PlanRange& range = work.plan.batches[static_cast<std::size_t>(batch)];
  for (std::int64_t place = range.first; place < range.first + range.count; ++place) {
    const auto sample = static_cast<std::size_t>(work.plan.order[static_cast<std::size_t>(place)]);
    const SampleKey key{work.tokens.sample_id[sample], work.tokens.variant[sample]};
    if (std::find(quarantined.begin(), quarantined.end(), key) != quarantined.end())
      failures.push_back(RefusedStates(key));
  }
  return failures;
}

/// Conversations of which no sample came; `rows` conversations went in.
std::int64_t CountRowsWithoutSample(const TokenizedChunk& chunk, std::int64_t rows) {
  std::int64_t with_sample = 0;
  for (std::size_t i = 0; i < chunk.sample_id.size(); ++i) {
    if (i == 0 || chunk.sample_id[i] != chunk.sample_id[i - 1]) ++with_sample;
  }
  return rows - with_sample;
}

}  // namespace

ChunkPass::ChunkPass(ChunkPassContext context, std::vector<ChunkRecord> chunks)
    : context_(std::move(context)), chunks_(std::move(chunks)) {}
ChunkPass::~ChunkPass() = default;

Status ChunkPass::Run(const ChunkFlowLimits& limits, ChunkFlowPeaks* peaks) {
  std::vector<ChunkTicket> tickets;
  tickets.reserve(chunks_.size());
  for (const ChunkRecord& chunk : chunks_) {
    tickets.push_back({.chunk = static_cast<std::int32_t>(chunk.chunk), .cost_bytes = ChunkMemoryBytes(chunk)});
  }
  ChunkSteps steps;
  steps.tokenize = [this](ChunkWork& work) { return Tokenize(work); };
  steps.account = [this](ChunkWork& work) { return Account(work); };
  if (context_.extractor != nullptr) {
    steps.extract = [this](const ChunkWork& work, const std::function<Status(BatchStates)>& emit) {
      return Extract(work, emit);
    };
  }
  steps.write = [this](const ChunkWork& work, const BatchStates& states) { return Write(work, states); };
  steps.finish = [this](const ChunkWork& work) { return Finish(work); };
  steps.paced = [this](const WriterSpan& span) { WatchDisk(span); };
  steps.states_queued = [this](double fill) { context_.monitor->SetBufferFill("write", fill); };
  const Status status = RunChunkFlow(tickets, steps, limits, context_.should_stop, peaks);
  open_shard_.reset();
  // What is whole is committed even where the pass failed; the first failure is the one to tell.
  const Status flushed = context_.state->Flush();
  return status.ok() ? flushed : status;
}

// --- Tokenize: several threads at once ---------------------------------------------------------------------------------

Status ChunkPass::Tokenize(ChunkWork& work) {
  const ChunkRecord& record = RecordOf(work);
  // Which turn a sample ends with stands beside the plan; without one the chunk is tokenized again, to the same bytes.
  const bool is_read_back = record.tokenized && !record.plan_hash.empty();
  const Status status = is_read_back ? ReadTokenized(work, record) : TokenizeRows(work, record);
  const bool is_damage = status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kNotFound;
  if (!is_damage || SaysThatStateIsDamaged(status)) return status;
  return Corrupt(status.message() + ". Nothing published was lost: `draftmill verify --repair " +
                 ShellWord(context_.work_folder) + "` marks what is damaged, and the next run makes it again");
}

Status ChunkPass::TokenizeRows(ChunkWork& work, const ChunkRecord& record) {
  DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 digest, Hash128FromHex(record.ingested_digest));
  DRAFTMILL_ASSIGN_OR_RETURN(const IngestedChunk rows,
                             ReadIngestedChunk(*context_.files, context_.work_folder, work.ticket.chunk, digest));
  std::unique_ptr<TokenizeStage::LocalState> local;
  {
    const std::lock_guard<std::mutex> lock(idle_states_mutex_);
    if (!idle_states_.empty()) {
      local = std::move(idle_states_.back());
      idle_states_.pop_back();
    }
  }
  if (!local) local = context_.tokenize->MakeLocalState();
  Result<TokenizedChunk> tokens = context_.tokenize->TokenizeChunk(rows, *local);
  work.report = local->TakeReport();
  {
    const std::lock_guard<std::mutex> lock(idle_states_mutex_);
    idle_states_.push_back(std::move(local));
  }
  if (!tokens.ok()) return tokens.status().WithContext(fmt::format("chunk {}", work.ticket.chunk));
  work.tokens = std::move(tokens).value();
  work.supervised_tokens = CountSupervised(work.tokens);
  work.is_tokenized_now = true;
  DRAFTMILL_RETURN_IF_ERROR(WaitForSpace(0));
  DRAFTMILL_ASSIGN_OR_RETURN(const PublishedFile file, WriteCorpusChunk(*context_.files, context_.work_folder,
                                                                        work.tokens, context_.tokenize_fingerprint));
  work.corpus_digest = ToHex(file.digest);
  work.corpus_bytes = file.bytes;
  return OkStatus();
}

Status ChunkPass::ReadTokenized(ChunkWork& work, const ChunkRecord& record) {
  DRAFTMILL_ASSIGN_OR_RETURN(CorpusChunk corpus,
                             ReadCorpusChunk(*context_.files, context_.work_folder, work.ticket.chunk));
  work.tokens = std::move(corpus.chunk);
  work.corpus_digest = record.corpus_digest;
  work.corpus_bytes = record.corpus_bytes;
  work.supervised_tokens = record.supervised_tokens;
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(context_.work_folder, *context_.files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SampleRecord> samples, state.Samples(record.chunk));
  if (samples.size() != work.tokens.sample_id.size()) {
    return Corrupt(fmt::format("{} has {} samples, and state.db has {} for this chunk",
                               CorpusChunkPath(work.ticket.chunk), work.tokens.sample_id.size(), samples.size()));
  }
  for (const SampleRecord& sample : samples) {
    work.tokens.source.push_back(static_cast<std::int32_t>(sample.source));
    work.tokens.turn.push_back(static_cast<std::int32_t>(sample.turn));
  }
  return OkStatus();
}

Status ChunkPass::WaitForSpace(std::int64_t states_bytes) {
  return context_.disk->WaitForSpace(states_bytes, context_.should_stop, [this](const std::string& text) {
    context_.monitor->Say(EventLevel::kWarning, text);
  });
}

// --- Account: one chunk at a time, in plan order -----------------------------------------------------------------------

Status ChunkPass::Account(ChunkWork& work) {
  if (work.is_tokenized_now) DRAFTMILL_RETURN_IF_ERROR(RecordTokenized(work));
  if (context_.vocab_counter != nullptr) {
    DRAFTMILL_RETURN_IF_ERROR(context_.vocab_counter->Count(work.tokens));
    context_.monitor->Add("vocab_map", work.tokens.samples(), work.supervised_tokens, 0);
  }
  DRAFTMILL_RETURN_IF_ERROR(context_.bad_rows->JudgeChunkEnd());
  if (context_.plan_parameters.bytes_per_token == 0) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(Plan(work, RecordOf(work)));
  if (context_.extractor == nullptr) return OkStatus();
  return FindMissing(work);
}

Status ChunkPass::RecordTokenized(const ChunkWork& work) {
  const ChunkRecord& record = RecordOf(work);
  const std::int64_t failed = CountRowsWithoutSample(work.tokens, record.rows);
  // A chunk that was tokenized before is counted among the bad rows already.
  context_.bad_rows->Add(record.tokenized ? failed - record.tokenize_failed : failed);
  context_.state->PutTokenizedChunk({.chunk = record.chunk,
                                     .samples = work.tokens.samples(),
                                     .tokens = work.tokens.tokens(),
                                     .supervised_tokens = work.supervised_tokens,
                                     .failed = failed,
                                     .corpus_digest = work.corpus_digest,
                                     .corpus_bytes = work.corpus_bytes,
                                     .report = MaskCountersAsJson(work.report),
                                     .failures = FailureRecords(work.tokens.failures, record.chunk)});
  if (!record.tokenized) context_.monitor->Add("tokenize", record.rows, work.tokens.tokens(), work.corpus_bytes);
  return context_.state->failure();
}

Status ChunkPass::Plan(ChunkWork& work, const ChunkRecord& record) {
  const bool keeps_plan = record.published_shards > 0 && work.corpus_digest == record.corpus_digest;
  if (keeps_plan) {
    // Changed batch, block or shard sizes apply only to chunks of which nothing is published.
    DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(context_.work_folder, *context_.files));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> stored, state.Plan(record.chunk));
    DRAFTMILL_ASSIGN_OR_RETURN(const PlanParameters parameters, PlanParametersFromBytes(stored));
    if (parameters.bytes_per_token == context_.plan_parameters.bytes_per_token) {
      DRAFTMILL_ASSIGN_OR_RETURN(work.plan, PlanChunk(work.tokens.cu_seqlens, parameters));
      if (ToHex(work.plan.plan_hash) == record.plan_hash) return OkStatus();
      return sqlite::Damaged("state.db",
                             fmt::format("the plan of chunk {} is not the one that its lengths give", record.chunk));
    }
  }
  DRAFTMILL_ASSIGN_OR_RETURN(work.plan, PlanChunk(work.tokens.cu_seqlens, context_.plan_parameters));
  if (ToHex(work.plan.plan_hash) == record.plan_hash && work.corpus_digest == record.corpus_digest) return OkStatus();
  // The plan is durable before anything of the chunk is computed.
  DRAFTMILL_RETURN_IF_ERROR(
      context_.state->Wait(context_.state->PutPlan(PlanRecordOf(work, context_.plan_parameters))));
  return RemoveUnplanned(work);
}

// Another plan may have fewer shards than an earlier one left files of.
Status ChunkPass::RemoveUnplanned(const ChunkWork& work) {
  std::set<std::string> planned;
  for (std::size_t i = 0; i < work.plan.shards.size(); ++i) {
    const std::string path = JoinPath(context_.work_folder, ShardPath(work.ticket.chunk, static_cast<std::int64_t>(i)));
    planned.insert(path);
    planned.insert(PartialPath(path));
  }
  const std::string folder = ParentPath(JoinPath(context_.work_folder, ShardPath(work.ticket.chunk, 0)));
  if (!context_.files->Exists(folder)) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, context_.files->List(folder));
  for (const FileInfo& entry : entries) {
    const std::string path = JoinPath(folder, entry.name);
    if (!planned.contains(path)) DRAFTMILL_RETURN_IF_ERROR(context_.files->Remove(path));
  }
  return context_.files->SyncFolder(folder);
}

Status ChunkPass::FindMissing(ChunkWork& work) {
  const auto batches = static_cast<std::int64_t>(work.plan.batches.size());
  work.batch_wanted.assign(static_cast<std::size_t>(batches), false);
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(context_.work_folder, *context_.files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<BatchRecord> batch_records, state.Batches(work.ticket.chunk));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardRecord> shard_records, state.Shards(work.ticket.chunk));
  for (const ShardRecord& shard : shard_records) {
    if (CountsAsPublished(shard.state)) continue;
    if (shard.state == ShardState::kDamaged) {
      DRAFTMILL_RETURN_IF_ERROR(ReopenShard(*context_.files, context_.work_folder, work.ticket.chunk, shard.shard));
    }
    if (shard.state == ShardState::kPlanned) {
      DRAFTMILL_ASSIGN_OR_RETURN(const bool adopted, Adopt(work, shard.shard));
      if (adopted) continue;
    }
    const std::vector<WrittenBatch> recorded = RecordedBatches(batch_records, shard.shard);
    if (recorded.empty()) {
      for (std::int64_t i = 0; i < shard.batches; ++i)
        work.batch_wanted[static_cast<std::size_t>(shard.first_batch + i)] = true;
      continue;
    }
    DRAFTMILL_ASSIGN_OR_RETURN(
        const std::unique_ptr<ShardWriter> writer,
        ShardWriter::Open(*context_.files, context_.work_folder, SourceOf(work, shard.shard), recorded));
    std::vector<std::int64_t> missing = writer->missing();
    // All was written, and the end came before the rename: publish it by writing its last batch once more.
    if (missing.empty()) missing.push_back(shard.first_batch + shard.batches - 1);
    for (const std::int64_t batch : missing) work.batch_wanted[static_cast<std::size_t>(batch)] = true;
  }
  return OkStatus();
}

Result<bool> ChunkPass::Adopt(const ChunkWork& work, std::int64_t shard) {
  const std::string path = JoinPath(context_.work_folder, ShardPath(work.ticket.chunk, shard));
  if (!context_.files->Exists(path)) return false;
  Result<PublishedShard> adopted = AdoptShard(*context_.files, context_.work_folder, SourceOf(work, shard));
  if (adopted.ok()) {
    for (const WrittenBatch& batch : adopted->batches) {
      const std::vector<Failure> failures = RefusedOfBatch(work, batch.batch, adopted->quarantined);
      context_.state->PutWrittenBatch({.chunk = work.ticket.chunk,
                                       .batch = batch.batch,
                                       .digest = ToHex(batch.digest),
                                       .quarantined = static_cast<std::int64_t>(failures.size()),
                                       .failures = FailureRecords(failures, work.ticket.chunk)});
    }
    DRAFTMILL_RETURN_IF_ERROR(RecordPublished(work, shard, *adopted));
    context_.monitor->Say(EventLevel::kInfo,
                          fmt::format("{}: found whole and right, kept", ShardPath(work.ticket.chunk, shard)));
    return true;
  }
  if (adopted.status().code() != StatusCode::kCorrupt) return adopted.status();
  if (SaysThatStateIsDamaged(adopted.status())) return adopted.status();
  context_.monitor->Say(EventLevel::kWarning,
                        fmt::format("{}: not this run's ({}), made again", ShardPath(work.ticket.chunk, shard),
                                    adopted.status().message()));
  DRAFTMILL_RETURN_IF_ERROR(context_.files->Remove(path));
  return false;
}

// --- Extract: a thread of its own --------------------------------------------------------------------------------------

Status ChunkPass::Extract(const ChunkWork& work, const std::function<Status(BatchStates)>& emit) {
  std::size_t block = 0;
  return context_.extractor->ExtractBlocks([&] { return NextBlock(work, block); }, emit, context_.should_stop);
}

Result<std::optional<BlockRequest>> ChunkPass::NextBlock(const ChunkWork& work, std::size_t& block) {
  for (; block < work.plan.blocks.size(); ++block) {
    BlockRequest request{
        .chunk = &work.tokens, .plan = &work.plan, .block = static_cast<std::int64_t>(block), .batches = {}};
    std::int64_t tokens = 0;
    const PlanRange& range = work.plan.blocks[block];
    for (std::int64_t batch = range.first; batch < range.first + range.count; ++batch) {
      if (!work.batch_wanted[static_cast<std::size_t>(batch)]) continue;
      request.batches.push_back(batch);
      tokens += work.plan.batch_tokens[static_cast<std::size_t>(batch)];
    }
    if (request.batches.empty()) continue;
    if (context_.should_stop()) return Cancelled("stopped on request");
    DRAFTMILL_RETURN_IF_ERROR(WaitForSpace(BytesAtOnce(tokens * context_.plan_parameters.bytes_per_token,
                                                       context_.plan_parameters, context_.discards_shards)));
    // The span of the block's throughput begins here: its batches come out together, at its end.
    context_.monitor->SetActivity("extract", StageActivity::kRunning);
    ++block;
    return std::optional(std::move(request));
  }
  return std::optional<BlockRequest>();
}

// --- Write: a thread of its own ----------------------------------------------------------------------------------------

ShardSource ChunkPass::SourceOf(const ChunkWork& work, std::int64_t shard) const {
  return {.chunk = &work.tokens, .plan = &work.plan, .convention = context_.convention, .shard = shard};
}

Status ChunkPass::OpenShardFor(const ChunkWork& work, std::int64_t shard) {
  if (open_shard_ && open_shard_->shard == shard) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(context_.work_folder, *context_.files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<BatchRecord> batches, state.Batches(work.ticket.chunk));
  DRAFTMILL_ASSIGN_OR_RETURN(
      std::unique_ptr<ShardWriter> writer,
      ShardWriter::Open(*context_.files, context_.work_folder, SourceOf(work, shard), RecordedBatches(batches, shard)));
  open_shard_ = std::make_unique<OpenShard>(OpenShard{.shard = shard, .writer = std::move(writer)});
  return OkStatus();
}

/// Says at once what would otherwise be found when the run has ended (self_check_step.h).
void ChunkPass::WatchStates(const ChunkWork& work, const BatchStates& states) {
  constexpr std::int64_t kFewestPositions = 64;
  if (first_norms_.empty()) first_norms_ = states.check.mean_norms;
  const std::int64_t slot = LayerOutsideBand(states.check.mean_norms, first_norms_);
  if (slot >= 0 && !norms_reported_) {
    norms_reported_ = true;
    context_.monitor->Say(
        EventLevel::kWarning,
        fmt::format("chunk {}, batch {}: the mean norm of x_{} is {:.4g}, in the first batch it was {:.4g}",
                    work.ticket.chunk, states.batch, context_.convention->layers[static_cast<std::size_t>(slot)],
                    states.check.mean_norms[static_cast<std::size_t>(slot)],
                    first_norms_[static_cast<std::size_t>(slot)]));
  }
  agreement_.Add(states.check.agreement);
  if (agreement_reported_ || agreement_.positions < kFewestPositions || agreement_.as_stored > agreement_.BestWrong())
    return;
  agreement_reported_ = true;
  context_.monitor->Say(
      EventLevel::kWarning,
      fmt::format(
          "the model's head agrees with the text at {} of {} positions so far, and at {} in a wrong reading of the "
          "states: stop and try `draftmill doctor model`, unless the model was never trained",
          agreement_.as_stored, agreement_.positions, agreement_.BestWrong()));
}

/// Told when it begins and when it ends, not every half minute between.
void ChunkPass::WatchDisk(const WriterSpan& span) {
  if (span.disk_is_slower() == disk_is_slower_) return;
  disk_is_slower_ = span.disk_is_slower();
  if (disk_is_slower_) {
    context_.monitor->Say(EventLevel::kWarning, "the disk is slower than the states: " + Describe(span));
  } else {
    context_.monitor->Say(EventLevel::kInfo, "the disk keeps up with the states again");
  }
}

Status ChunkPass::Write(const ChunkWork& work, const BatchStates& states) {
  WatchStates(work, states);
  DRAFTMILL_RETURN_IF_ERROR(OpenShardFor(work, ShardOfBatch(work.plan, states.batch)));
  DRAFTMILL_ASSIGN_OR_RETURN(const WrittenBatch written, open_shard_->writer->WriteBatch(states));
  std::vector<Failure> failures;
  for (std::size_t i = 0; i < states.sample_state.size(); ++i) {
    if (states.sample_state[i] == 0) continue;
    failures.push_back(RefusedStates(states.keys[i]));
  }
  const auto tokens = work.plan.batch_tokens[static_cast<std::size_t>(states.batch)];
  context_.state->PutWrittenBatch({.chunk = states.chunk,
                                   .batch = states.batch,
                                   .digest = ToHex(written.digest),
                                   .seconds = states.compute_seconds,
                                   .quarantined = static_cast<std::int64_t>(failures.size()),
                                   .failures = FailureRecords(failures, states.chunk)});
  context_.monitor->Add("extract", static_cast<std::int64_t>(states.keys.size()), tokens,
                        tokens * context_.plan_parameters.bytes_per_token);
  if (!open_shard_->writer->missing().empty()) return context_.state->failure();
  return PublishOpenShard(work);
}

Status ChunkPass::PublishOpenShard(const ChunkWork& work) {
  DRAFTMILL_ASSIGN_OR_RETURN(const PublishedShard published, open_shard_->writer->Publish());
  const std::int64_t shard = open_shard_->shard;
  open_shard_.reset();
  return RecordPublished(work, shard, published);
}

Status ChunkPass::RecordPublished(const ChunkWork& work, std::int64_t shard, const PublishedShard& published) {
  const StateWriter::Ticket ticket =
      context_.state->PutPublishedShard({.chunk = work.ticket.chunk,
                                         .shard = shard,
                                         .file = published.file.path,
                                         .bytes = published.file.bytes,
                                         .digest = ToHex(published.file.digest),
                                         .quarantined = static_cast<std::int64_t>(published.quarantined.size()),
                                         .fingerprint = context_.states_fingerprint,
                                         .numerics = context_.convention->numerics_environment,
                                         .is_discarded = context_.discards_shards});
  context_.monitor->Add("write", published.samples, published.tokens, published.file.bytes);
  if (!context_.discards_shards) return context_.state->failure();
  // The row first: a file that is gone before its row says so is a shard that has to be computed again.
  DRAFTMILL_RETURN_IF_ERROR(context_.state->Wait(ticket));
  return DiscardShard(*context_.files, context_.work_folder, published.file.path);
}

Status ChunkPass::Finish(const ChunkWork& work) {
  // Of a chunk that wanted nothing the serial step tells, while the writer's thread may be filling a shard of another one.
  const bool is_writers =
      std::find(work.batch_wanted.begin(), work.batch_wanted.end(), true) != work.batch_wanted.end();
  // Shards never cross chunks: one that is still open belongs to a block that was dropped.
  if (is_writers) open_shard_.reset();
  return context_.state->failure();
}

}  // namespace draftmill

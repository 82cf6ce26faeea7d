#include "pipeline/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/corpus_chunk.h"
#include "formats/manifest.h"
#include "formats/shard_example.h"
#include "pipeline/verify/verify_progress.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/vocab_map/vocab_files.h"
#include "stages/write/shard_writer.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A finished work folder with one chunk, its real files and its rows.
class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateWriter>> state = StateWriter::Open(work_, {.create = true});
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    (*state)->DeclareStages({"ingest", "tokenize", "vocab_map", "extract", "write"});
    WriteIngested(**state);
    WriteCorpus(**state);
    WritePlan(**state);
    for (const std::int64_t shard : {0, 1}) WriteShard(**state, shard);
    WriteVocabulary();
    for (const char* stage : {"ingest", "tokenize", "vocab_map", "extract", "write"}) {
      (*state)->SetStageState(stage, StageState::kDone);
    }
    ASSERT_TRUE(WriteManifest(files_, work_, manifest_).ok());
    ASSERT_TRUE((*state)->Close().ok());
  }

  void WriteIngested(StateWriter& state) {
    IngestedChunkText text(0, 0, 0);
    for (int i = 0; i < 3; ++i) text.Add(HashBytes128("x"), {}, R"({"messages":[]})");
    ASSERT_TRUE(files_.MakeFolder(IngestedFolder(work_)).ok());
    const Result<IngestedChunkFacts> facts = text.WriteFile(files_, work_);
    ASSERT_TRUE(facts.ok()) << facts.status().ToString();
    std::vector<ConversationRecord> conversations(3);
    for (std::size_t i = 0; i < conversations.size(); ++i) conversations[i].sample_id = static_cast<std::int64_t>(i);
    state.PutConversations(conversations);
    state.PutChunk(
        {.chunk = 0, .epoch = 0, .first_sample = 0, .rows = 3, .bytes = facts->bytes, .digest = ToHex(facts->digest)});
  }

  void WriteCorpus(StateWriter& state) {
    const Result<PublishedFile> file = WriteCorpusChunk(files_, work_, chunk_, "t1");
    ASSERT_TRUE(file.ok());
    manifest_.corpus.push_back({*file, chunk_.samples(), chunk_.tokens(), 0});
    state.PutTokenizedChunk({.chunk = 0,
                             .samples = chunk_.samples(),
                             .tokens = chunk_.tokens(),
                             .supervised_tokens = 11,
                             .corpus_digest = ToHex(file->digest),
                             .corpus_bytes = file->bytes});
  }

  void WritePlan(StateWriter& state) {
    ChunkPlanRecord record{.chunk = 0, .plan_hash = ToHex(plan_.plan_hash)};
    for (std::size_t i = 0; i < plan_.batches.size(); ++i) {
      record.batches.push_back({.batch = static_cast<std::int64_t>(i),
                                .shard = i < 3 ? 0 : 1,
                                .samples = plan_.batches[i].count,
                                .tokens = plan_.batch_tokens[i]});
    }
    record.shards = {{.shard = 0, .first_batch = 0, .batches = 3, .samples = 5, .tokens = 15},
                     {.shard = 1, .first_batch = 3, .batches = 1, .samples = 1, .tokens = 2}};
    const std::int64_t batch_of_position[] = {0, 0, 1, 1, 2, 3};
    record.samples.resize(plan_.order.size());
    for (std::size_t position = 0; position < plan_.order.size(); ++position) {
      const auto i = static_cast<std::size_t>(plan_.order[position]);
      record.samples[i] = {.sample_id = chunk_.sample_id[i],
                           .variant = chunk_.variant[i],
                           .batch = batch_of_position[position],
                           .position = static_cast<std::int64_t>(position),
                           .tokens = chunk_.cu_seqlens[i + 1] - chunk_.cu_seqlens[i]};
    }
    state.PutPlan(record);
  }

  BatchStates States(std::int64_t batch) const {
    BatchStates states;
    states.batch = static_cast<std::int32_t>(batch);
    const PlanRange range = plan_.batches[static_cast<std::size_t>(batch)];
    for (auto place = range.first; place < range.first + range.count; ++place) {
      const auto i = static_cast<std::size_t>(plan_.order[static_cast<std::size_t>(place)]);
      states.keys.push_back({chunk_.sample_id[i], chunk_.variant[i]});
      states.token_hashes.push_back(chunk_.token_hash[i]);
      states.sample_state.push_back(0);
    }
    states.hidden_states.assign(static_cast<std::size_t>(plan_.batch_tokens[static_cast<std::size_t>(batch)]) * 8,
                                0x3f80);
    return states;
  }

  void WriteShard(StateWriter& state, std::int64_t number) {
    auto writer = ShardWriter::Open(files_, work_, {&chunk_, &plan_, &convention_, number}, {});
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    for (const std::int64_t batch : (*writer)->missing()) {
      const Result<WrittenBatch> written = (*writer)->WriteBatch(States(batch));
      ASSERT_TRUE(written.ok()) << written.status().ToString();
      state.PutWrittenBatch({.chunk = 0, .batch = batch, .digest = ToHex(written->digest)});
    }
    const Result<PublishedShard> shard = (*writer)->Publish();
    ASSERT_TRUE(shard.ok());
    manifest_.shards.push_back({shard->file, shard->samples, shard->tokens, 0});
    state.PutPublishedShard({.chunk = 0,
                             .shard = number,
                             .file = shard->file.path,
                             .bytes = shard->file.bytes,
                             .digest = ToHex(shard->file.digest),
                             .fingerprint = convention_.extract_fingerprint});
  }

  void WriteVocabulary() {
    VocabCounter counter(600, 2);
    ASSERT_TRUE(counter.Count(chunk_).ok());
    const Result<VocabMap> map = BuildVocabMap(counter, {.size = 20, .source_names = {"a", "b"}});
    ASSERT_TRUE(map.ok());
    const auto published = WriteVocab(files_, work_, *map);
    ASSERT_TRUE(published.ok());
    manifest_.vocab = *published;
  }

  VerifyReport Verify(bool deep) {
    Result<StateReader> state = StateReader::Open(work_);
    EXPECT_TRUE(state.ok());
    const Result<VerifyReport> report = VerifyWork(files_, *state, work_, {.deep = deep});
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return *report;
  }

  void Damage(const std::string& file, std::int64_t offset) {
    const std::string path = JoinPath(work_, file);
    std::string content = *files_.ReadAll(path);
    const auto at = static_cast<std::size_t>(offset < 0 ? offset + static_cast<std::int64_t>(content.size()) : offset);
    content[at] = static_cast<char>(content[at] ^ 0x40);
    ASSERT_TRUE(files_.WriteAtomically(path, content).ok());
  }

  /// The one fault of a deep look, after a plain one found nothing where `plain_finds_it` is false.
  VerifyFault OneFault(bool plain_finds_it) {
    EXPECT_EQ(Verify(false).ok(), !plain_finds_it);
    const VerifyReport report = Verify(true);
    EXPECT_EQ(report.faults.size(), 1U) << json::Write(VerifyReportJson(report));
    return report.faults.empty() ? VerifyFault() : report.faults.front();
  }

  FileSystem& files_ = RealFileSystem();
  TemporaryFolder folder_;
  const std::string work_ = folder_.path();
  const TokenizedChunk chunk_ = [] {
    TokenizedChunk chunk = ExampleShardChunk();
    chunk.chunk = 0;
    const std::int64_t first = chunk.sample_id.front();
    for (std::int64_t& sample : chunk.sample_id) sample -= first;
    return chunk;
  }();
  const ChunkPlan plan_ = ExamplePlan();
  const ShardConvention convention_ = ExampleConvention();
  Manifest manifest_;
  const std::string shard_file_ = ShardPath(0, 0);
};

TEST_F(VerifyTest, AWholeFolderHasNoFaults) {
  for (const bool deep : {false, true}) {
    const VerifyReport report = Verify(deep);
    EXPECT_TRUE(report.ok()) << json::Write(VerifyReportJson(report));
    EXPECT_EQ(report.files, 9);  // ingested, corpus, two shards, four of the vocabulary, the manifest
    EXPECT_TRUE(report.notes.empty());
    EXPECT_EQ(VerifyAdvice(report, "w"), "");
  }
}

TEST_F(VerifyTest, MissingAndShortenedFilesAreFoundWithoutReadingThem) {
  ASSERT_TRUE(files_.Remove(JoinPath(work_, shard_file_)).ok());
  EXPECT_EQ(OneFault(true).message, "the file is missing");
  ASSERT_TRUE(files_.WriteAtomically(JoinPath(work_, "corpus/chunk-000000.safetensors"), "short").ok());
  const VerifyReport report = Verify(false);
  ASSERT_EQ(report.faults.size(), 2U);
  EXPECT_EQ(report.faults[0].target, VerifyTarget::kCorpusChunk);
  EXPECT_THAT(report.faults[0].message, HasSubstr("5 bytes, recorded are"));
  EXPECT_THAT(VerifyAdvice(report, "work/demo"), HasSubstr("`draftmill verify work/demo --repair`"));
}

TEST_F(VerifyTest, DamagedStatesAreFoundByADeepLookWhichNamesBatchAndSample) {
  Damage(shard_file_, kStatesAlignment + 5 * 16 + 3);  // the first token of batch 1
  const VerifyFault fault = OneFault(false);
  EXPECT_EQ(fault.target, VerifyTarget::kBatches);
  EXPECT_THAT(fault.batches, ElementsAre(1));
  EXPECT_EQ(fault.message, "damaged samples: 0/1");
}

TEST_F(VerifyTest, DamagedTokensOfAShardCostTheirBatchDamagedHeadersTheShard) {
  const ShardLayout layout = *LayOutShard(0, chunk_.cu_seqlens, plan_, 0, convention_);
  Damage(shard_file_, layout.TensorOffset("input_ids"));
  VerifyFault fault = OneFault(false);
  EXPECT_EQ(fault.target, VerifyTarget::kBatches);
  EXPECT_THAT(fault.batches, ElementsAre(0));
  Damage(shard_file_, layout.TensorOffset("input_ids"));
  Damage(shard_file_, layout.TensorOffset("content_hash"));
  EXPECT_EQ(OneFault(false).target, VerifyTarget::kShard);
  Damage(shard_file_, layout.TensorOffset("content_hash"));
  Damage(shard_file_, 12);
  EXPECT_EQ(OneFault(true).target, VerifyTarget::kShard);
}

TEST_F(VerifyTest, EveryOtherKindOfFileIsChecked) {
  Damage("ingested/chunk-000000.jsonl.zst", -1);
  EXPECT_EQ(OneFault(false).target, VerifyTarget::kIngestedChunk);
  Damage("ingested/chunk-000000.jsonl.zst", -1);
  Damage("corpus/chunk-000000.safetensors", -1);
  EXPECT_EQ(OneFault(false).target, VerifyTarget::kCorpusChunk);
  Damage("corpus/chunk-000000.safetensors", -1);
  Damage("vocab/d2t.npy", 128);
  const VerifyReport report = Verify(false);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.faults[0].target, VerifyTarget::kVocab);
  Damage("vocab/d2t.npy", 128);
  EXPECT_TRUE(Verify(true).ok());
  ASSERT_TRUE(RemoveManifest(files_, work_).ok());
  EXPECT_EQ(OneFault(true).target, VerifyTarget::kManifest);
  manifest_.shards.pop_back();
  ASSERT_TRUE(WriteManifest(files_, work_, manifest_).ok());
  EXPECT_THAT(OneFault(true).message, HasSubstr("files, published are"));
}

TEST_F(VerifyTest, FilesThatNoRowSpeaksOfAreNoted) {
  ASSERT_TRUE(files_.WriteAtomically(JoinPath(work_, "shards/000000/c000000-s007.safetensors"), "x").ok());
  const VerifyReport report = Verify(false);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("c000000-s007.safetensors: no row speaks of it")));
}

TEST_F(VerifyTest, MarkedDamageIsWorkAndOnlyTheDamagedBatchIsWrittenAgain) {
  const std::string right = *files_.ReadAll(JoinPath(work_, shard_file_));
  Damage(shard_file_, kStatesAlignment + 5 * 16);
  const VerifyReport report = Verify(true);
  {
    auto state = StateWriter::Open(work_, {});
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE(MarkDamage(files_, work_, **state, report).ok());
    ASSERT_TRUE((*state)->Close().ok());
  }
  EXPECT_FALSE(files_.Exists(ManifestPath(work_)));
  const VerifyReport marked = Verify(true);
  EXPECT_TRUE(marked.ok()) << json::Write(VerifyReportJson(marked));
  EXPECT_EQ(marked.unfinished_shards, 1);

  std::vector<WrittenBatch> rows;
  Result<StateReader> state = StateReader::Open(work_);
  ASSERT_TRUE(state.ok());
  const auto batches = state->Batches(0);
  for (const BatchRecord& batch : *batches) {
    if (batch.written) rows.push_back({batch.batch, *Hash128FromHex(batch.digest)});
  }
  ASSERT_TRUE(ReopenShard(files_, work_, 0, 0).ok());
  auto writer = ShardWriter::Open(files_, work_, {&chunk_, &plan_, &convention_, 0}, rows);
  ASSERT_TRUE(writer.ok());
  EXPECT_THAT((*writer)->missing(), ElementsAre(1));
  ASSERT_TRUE((*writer)->WriteBatch(States(1)).ok());
  ASSERT_TRUE((*writer)->Publish().ok());
  EXPECT_EQ(*files_.ReadAll(JoinPath(work_, shard_file_)), right);
}

TEST_F(VerifyTest, StopsWhenAsked) {
  Result<StateReader> state = StateReader::Open(work_);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(VerifyWork(files_, *state, work_, {.should_stop = [] { return true; }}).status().code(),
            StatusCode::kCancelled);
}

TEST_F(VerifyTest, AnInterruptedCheckIsContinued) {
  VerifyReport found;
  {
    VerifyProgress progress(files_, RealClock(), work_);
    EXPECT_EQ(progress.first_chunk(), 0);
    progress.Note(7, found);
    progress.Keep();
  }
  EXPECT_EQ(VerifyProgress(files_, RealClock(), work_).first_chunk(), 7);
  found.faults.push_back({.chunk = 2});
  {
    VerifyProgress progress(files_, RealClock(), work_);
    progress.Note(9, found);
    progress.Keep();
  }
  EXPECT_EQ(VerifyProgress(files_, RealClock(), work_).first_chunk(), 2);
  VerifyProgress(files_, RealClock(), work_).Finish();
  EXPECT_EQ(VerifyProgress(files_, RealClock(), work_).first_chunk(), 0);
}

TEST_F(VerifyTest, AChangedDatabaseBeginsTheCheckAnew) {
  {
    VerifyProgress progress(files_, RealClock(), work_);
    progress.Note(7, {});
    progress.Keep();
  }
  Result<std::unique_ptr<StateWriter>> state = StateWriter::Open(work_, {});
  ASSERT_TRUE(state.ok());
  (*state)->SetFact("a", "b");
  ASSERT_TRUE((*state)->Close().ok());
  EXPECT_EQ(VerifyProgress(files_, RealClock(), work_).first_chunk(), 0);
}

// What was read already is looked at plainly, the rest to the last byte.
TEST_F(VerifyTest, BytesBeforeTheFirstDeepChunkAreNotReadAgain) {
  Result<StateReader> state = StateReader::Open(work_);
  ASSERT_TRUE(state.ok());
  Damage(shard_file_, kStatesAlignment + 5 * 16 + 3);
  EXPECT_FALSE(VerifyWork(files_, *state, work_, {.deep = true})->ok());
  EXPECT_TRUE(VerifyWork(files_, *state, work_, {.deep = true, .first_deep_chunk = 1})->ok());
}

}  // namespace
}  // namespace draftmill

// What each change means, seen through StateReader.
#include "state/write_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "state/example_state.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::ElementsAre;

class WriteOperationsTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateWriter>> state = StateWriter::Open(folder_.path(), {.create = true});
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    state_ = std::move(state).value();
    const Status filled = FillExample(*state_, shape_);
    ASSERT_TRUE(filled.ok()) << filled.ToString();
    Result<StateReader> reader = StateReader::Open(folder_.path());
    ASSERT_TRUE(reader.ok());
    reader_.emplace(std::move(reader).value());
  }
  void TearDown() override {
    ExpectCountersHold();
    reader_.reset();
    EXPECT_TRUE(state_->Close().ok());
  }

  void Apply(StateWriter::Ticket ticket) {
    const Status status = state_->Wait(ticket);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  /// The counters of every chunk are what counting their rows gives.
  void ExpectCountersHold() {
    Apply(state_->Submit([&](sqlite::Connection& db) -> Status {
      for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
        DRAFTMILL_ASSIGN_OR_RETURN(const bool right, operations::RecountChunk(db, chunk));
        EXPECT_TRUE(right) << "chunk " << chunk;
      }
      return OkStatus();
    }));
  }
  ProgressRecord Progress(std::string_view stage) {
    const auto rows = reader_->Progress();
    EXPECT_TRUE(rows.ok()) << rows.status().ToString();
    for (const ProgressRecord& row : *rows) {
      if (row.stage == stage) return row;
    }
    ADD_FAILURE() << "no progress of " << stage;
    return {};
  }
  ChunkRecord Chunk(std::size_t chunk) { return reader_->Chunks()->at(chunk); }
  StageState State(std::string_view stage) { return reader_->Stage(stage)->state; }
  std::int64_t Count(std::string_view table) {
    return *reader_->connection().QueryInteger("SELECT count(*) FROM " + std::string(table));
  }
  std::string StageOf(std::int64_t sample_id) { return reader_->FindSample(sample_id)->front().stage; }

  const ExampleShape shape_;
  TemporaryFolder folder_;
  std::unique_ptr<StateWriter> state_;
  std::optional<StateReader> reader_;
};

TEST_F(WriteOperationsTest, ProgressSumsWhatEveryStageDid) {
  // 6 chunks of 64 rows, 63 samples of 100 tokens each where tokenized: 5 chunks; 3 written, the fourth half extracted.
  const ProgressRecord ingest = Progress("ingest");
  EXPECT_EQ(ingest.unit, "bytes");
  EXPECT_EQ(ingest.total, 384 * 2000);
  EXPECT_EQ(ingest.done, ingest.total);
  EXPECT_EQ(ingest.failed, 2);
  EXPECT_EQ(ingest.percent, 100.0);
  EXPECT_EQ(ingest.eta_seconds, 0);

  const ProgressRecord tokenize = Progress("tokenize");
  EXPECT_EQ(tokenize.total, 384);
  EXPECT_EQ(tokenize.done, 320);
  EXPECT_EQ(tokenize.failed, 5);
  EXPECT_EQ(tokenize.state, "running");

  const ProgressRecord extract = Progress("extract");
  EXPECT_EQ(extract.total, 5 * 63 + 64);
  EXPECT_EQ(extract.done, 3 * 63 + 4 * 8);
  EXPECT_EQ(extract.samples_per_second, 10.0);
  EXPECT_EQ(extract.tokens_per_second, 1000.0);
  // 31,500 tokens of 320 rows make 37,800 of 384; 22,100 are done.
  EXPECT_EQ(extract.eta_seconds, 16);

  const ProgressRecord write = Progress("write");
  EXPECT_EQ(write.done, 3 * 63 + 16);
  EXPECT_GT(write.bytes, 0);
}

TEST_F(WriteOperationsTest, SaysWhereEverySampleStands) {
  EXPECT_EQ(StageOf(0), "written");
  const SamplePlace written = reader_->FindSample(20)->front();
  EXPECT_EQ(written.batch, 2);
  EXPECT_EQ(written.shard, 1);
  EXPECT_EQ(written.file, "shards/0/s1.safetensors");
  EXPECT_EQ(written.line, 21);
  EXPECT_EQ(StageOf(3 * 64 + 20), "extracted");
  EXPECT_EQ(StageOf(3 * 64 + 40), "planned");
  EXPECT_EQ(StageOf(4 * 64), "tokenized");
  EXPECT_EQ(StageOf(5 * 64), "ingested");
  EXPECT_EQ(StageOf(63), "failed");
  EXPECT_EQ(reader_->FindSample(63)->front().reason, "no_supervised_token");
  EXPECT_EQ(reader_->FindSample(100'000).status().code(), StatusCode::kNotFound);
}

TEST_F(WriteOperationsTest, ReadsBackWhatAResumeNeeds) {
  const auto chunks = reader_->Chunks();
  ASSERT_EQ(chunks->size(), 6U);
  EXPECT_EQ(chunks->at(3).extracted_batches, 4);
  EXPECT_EQ(chunks->at(3).published_shards, 1);
  EXPECT_EQ(chunks->at(3).plan_hash, "plan 3");
  EXPECT_FALSE(chunks->at(5).tokenized);
  EXPECT_THAT(*reader_->Plan(3), ElementsAre(1, 2, 3));
  EXPECT_EQ(reader_->Plan(5).status().code(), StatusCode::kNotFound);
  const auto batches = reader_->Batches(3);
  ASSERT_EQ(batches->size(), 8U);
  EXPECT_TRUE(batches->at(3).written);
  EXPECT_EQ(batches->at(3).digest, "batch 3");
  EXPECT_FALSE(batches->at(4).written);
  const auto shards = reader_->Shards(3);
  ASSERT_EQ(shards->size(), 4U);
  EXPECT_EQ(shards->at(0).state, ShardState::kPublished);
  EXPECT_EQ(shards->at(1).state, ShardState::kPlanned);
  EXPECT_EQ(shards->at(3).samples, 15);
  EXPECT_EQ(reader_->Samples(3)->size(), 63U);
  EXPECT_EQ(Count("conversations WHERE chunk = 3"), 64);
  EXPECT_EQ(*reader_->connection().QueryText("SELECT lower(hex(content_hash)) FROM conversations WHERE sample_id = 7"),
            ToHex(HashBytes128("7")));
  EXPECT_EQ(reader_->Sources()->front().path, "data/chat.jsonl");
  const StageRecord tokenize = *reader_->Stage("tokenize");
  ASSERT_EQ(tokenize.fingerprint.parts().size(), 2U);
  EXPECT_EQ(tokenize.fingerprint.parts()[1].value, "2048");
  EXPECT_EQ(*reader_->connection().QueryText("SELECT fingerprint FROM stages WHERE stage = 'tokenize'"),
            tokenize.fingerprint.hash());
}

TEST_F(WriteOperationsTest, RepeatingAnyOfThemChangesNothing) {
  const auto dump = [&] {
    std::string text;
    const auto chunks = reader_->Chunks();
    for (const ChunkRecord& c : *chunks) {
      text += std::to_string(c.extracted_bytes) + "/" + std::to_string(c.published_bytes) + "/" + c.plan_hash + " ";
    }
    for (const char* table : {"conversations", "samples", "batches", "shards", "plans"})
      text += std::to_string(Count(table)) + " ";
    return text;
  };
  const std::string before = dump();
  state_->PutConversations(ExampleConversations(shape_, 0));
  state_->PutChunk({.chunk = 0, .first_sample = 0, .rows = 64, .bytes = 64 * 500, .digest = "ingested 0"});
  state_->PutPlan(ExamplePlan(shape_, 0));
  state_->PutWrittenBatch(ExampleBatch(0, 0));
  Apply(state_->PutPublishedShard(ExampleShard(shape_, 0, 0)));
  EXPECT_EQ(dump(), before);
}

TEST_F(WriteOperationsTest, FailuresArePagedAndCounted) {
  const auto counts = reader_->FailuresByReason();
  ASSERT_EQ(counts->size(), 2U);
  EXPECT_EQ(counts->at(0).reason, "no_supervised_token");
  EXPECT_EQ(counts->at(0).failures, 5);
  EXPECT_EQ(counts->at(1).failures, 2);
  FailureQuery query{.stage = "tokenize", .limit = 3};
  const auto first = reader_->Failures(query);
  ASSERT_EQ(first->size(), 3U);
  query.after = first->back().failure;
  const auto second = reader_->Failures(query);
  ASSERT_EQ(second->size(), 2U);
  EXPECT_EQ(second->back().chunk, 4);
  query = {.reason = "broken_json"};
  EXPECT_EQ(reader_->Failures(query)->front().sample_id, -1);
}

TEST_F(WriteOperationsTest, QuarantineInExtractionBelongsToItsBatch) {
  WrittenBatchRecord batch = ExampleBatch(3, 4);
  batch.quarantined = 1;
  batch.failures = {{.stage = "extract",
                     .reason = "not_finite",
                     .message = "NaN in layer 3, twice",
                     .sample_id = 3 * 64 + 33,
                     .chunk = 3}};
  Apply(state_->PutWrittenBatch(batch));
  EXPECT_EQ(Progress("extract").failed, 1);
  EXPECT_EQ(StageOf(3 * 64 + 33), "quarantined");
  EXPECT_EQ(StageOf(3 * 64 + 34), "extracted");
  // Computed again, and good this time.
  Apply(state_->PutWrittenBatch(ExampleBatch(3, 4)));
  EXPECT_EQ(Progress("extract").failed, 0);
  EXPECT_EQ(StageOf(3 * 64 + 33), "extracted");
}

TEST_F(WriteOperationsTest, TheSameCorpusKeepsWhatFollowsAndAnotherDropsIt) {
  TokenizedChunkRecord same{.chunk = 0, .samples = 63, .tokens = 6300, .failed = 1, .corpus_digest = "corpus 0"};
  same.report = R"({"rows":64,"boundary_tokens":5})";
  Apply(state_->RedoAllTokenization());
  EXPECT_EQ(Progress("tokenize").done, 0);
  EXPECT_TRUE(reader_->MaskReport()->empty());
  Apply(state_->PutTokenizedChunk(same));
  EXPECT_EQ(Chunk(0).published_shards, 4);
  EXPECT_EQ(Progress("tokenize").failed, 1);
  same.corpus_digest = "another";
  Apply(state_->PutTokenizedChunk(same));
  EXPECT_EQ(Chunk(0).published_shards, 0);
  EXPECT_EQ(Chunk(0).plan_hash, "");
  EXPECT_TRUE(reader_->Samples(0)->empty());
  EXPECT_EQ(reader_->Samples(1)->size(), 63U);
}

TEST_F(WriteOperationsTest, AnotherPlanTakesTheOldOnesPlace) {
  ChunkPlanRecord plan = ExamplePlan({.samples_per_batch = 16}, 3);
  plan.plan_hash = "another";
  Apply(state_->PutPlan(plan));
  EXPECT_EQ(reader_->Batches(3)->size(), 4U);
  EXPECT_EQ(Chunk(3).extracted_batches, 0);
  EXPECT_EQ(reader_->Samples(3)->size(), 63U);
}

TEST_F(WriteOperationsTest, ExtractionIsRedoneUnderItsPlanWhileOldShardsStay) {
  state_->SetStageState("extract", StageState::kDone);
  Apply(state_->RedoAllExtraction());
  EXPECT_EQ(Progress("extract").done, 0);
  EXPECT_EQ(State("extract"), StageState::kStale);
  EXPECT_EQ(Chunk(0).plan_hash, "plan 0");
  EXPECT_EQ(reader_->Shards(0)->front().state, ShardState::kStale);
  EXPECT_EQ(reader_->Shards(0)->front().file, "shards/0/s0.safetensors");
  EXPECT_EQ(reader_->Shards(3)->back().state, ShardState::kPlanned);
  state_->PutWrittenBatch(ExampleBatch(0, 0));
  state_->PutWrittenBatch(ExampleBatch(0, 1));
  Apply(state_->PutPublishedShard(ExampleShard(shape_, 0, 0)));
  EXPECT_EQ(reader_->Shards(0)->front().state, ShardState::kPublished);
}

TEST_F(WriteOperationsTest, ADiscardedShardCountsAsDoneUntilItIsRedone) {
  for (const char* stage : {"extract", "write"}) state_->SetStageState(stage, StageState::kDone);
  const ChunkRecord before = reader_->Chunks()->at(0);
  PublishedShardRecord shard = ExampleShard(shape_, 0, 1);
  shard.is_discarded = true;
  Apply(state_->PutPublishedShard(shard));
  EXPECT_EQ(reader_->Shards(0)->at(1).state, ShardState::kDiscarded);
  EXPECT_EQ(reader_->Shards(0)->at(1).file, shard.file);
  EXPECT_EQ(reader_->Chunks()->at(0).published_shards, before.published_shards);
  EXPECT_EQ(reader_->Chunks()->at(0).published_bytes, before.published_bytes);
  EXPECT_EQ(reader_->DiscardedShards()->shards, 1);
  EXPECT_EQ(reader_->DiscardedShards()->tokens, 1600);
  EXPECT_EQ(StageOf(20), "discarded");
  EXPECT_EQ(reader_->FindSample(20)->front().file, "") << "nobody should look for it";

  Apply(state_->RedoDiscardedShards());
  EXPECT_EQ(State("write"), StageState::kStale);
  EXPECT_EQ(reader_->Shards(0)->at(1).state, ShardState::kPlanned);
  EXPECT_EQ(reader_->Shards(0)->at(1).file, "");
  EXPECT_EQ(reader_->Shards(0)->at(0).state, ShardState::kPublished);
  EXPECT_FALSE(reader_->Batches(0)->at(2).written);
  EXPECT_TRUE(reader_->Batches(0)->at(1).written);
  EXPECT_EQ(reader_->Chunks()->at(0).published_shards, before.published_shards - 1);
  EXPECT_EQ(reader_->Chunks()->at(0).extracted_batches, before.extracted_batches - 2);
  EXPECT_EQ(reader_->DiscardedShards()->shards, 0);
}

TEST_F(WriteOperationsTest, AnIngestThatGivesTheSameChunksKeepsTheirWork) {
  Apply(state_->RedoIngest());
  EXPECT_EQ(Count("conversations"), 0);
  state_->PutConversations(ExampleConversations(shape_, 0));
  state_->PutChunk({.chunk = 0, .first_sample = 0, .rows = 64, .bytes = 64 * 500, .digest = "ingested 0"});
  state_->PutChunk({.chunk = 1, .first_sample = 64, .rows = 64, .bytes = 64 * 500, .digest = "another"});
  Apply(state_->DropChunksFrom(2));
  EXPECT_EQ(reader_->Chunks()->size(), 2U);
  EXPECT_EQ(Chunk(0).published_shards, 4);
  EXPECT_TRUE(Chunk(0).ingested);
  EXPECT_FALSE(Chunk(1).tokenized);
  EXPECT_EQ(Count("samples"), 63);
  EXPECT_EQ(Count("shards"), 4);
}

TEST_F(WriteOperationsTest, RepairMakesWorkOfDamage) {
  for (const char* stage : {"extract", "write", "tokenize", "ingest"}) state_->SetStageState(stage, StageState::kDone);
  Apply(state_->MarkBatchesDamaged(0, {2, 3}));
  EXPECT_EQ(State("write"), StageState::kStale);
  EXPECT_EQ(reader_->Shards(0)->at(1).state, ShardState::kDamaged);
  EXPECT_EQ(reader_->Shards(0)->at(0).state, ShardState::kPublished);
  EXPECT_EQ(Chunk(0).extracted_batches, 6);
  EXPECT_EQ(Chunk(0).published_shards, 3);
  Apply(state_->MarkShardDamaged(1, 0));
  EXPECT_FALSE(reader_->Batches(1)->at(1).written);
  EXPECT_TRUE(reader_->Batches(1)->at(2).written);
  Apply(state_->MarkCorpusDamaged(2));
  EXPECT_FALSE(Chunk(2).tokenized);
  EXPECT_EQ(Chunk(2).corpus_digest, "corpus 2");
  Apply(state_->MarkIngestedDamaged(2));
  EXPECT_FALSE(Chunk(2).ingested);
  const auto counts = reader_->ShardsByState();
  ASSERT_EQ(counts->size(), 3U);
  EXPECT_EQ(counts->at(0).state, ShardState::kDamaged);
  EXPECT_EQ(counts->at(0).shards, 2);
}

TEST_F(WriteOperationsTest, StagesKeepTheirStateWhenDeclaredAgain) {
  Apply(state_->DeclareStages({"ingest", "generate", "tokenize", "vocab_map", "extract", "write"}));
  const auto stages = reader_->Stages();
  ASSERT_EQ(stages->size(), 6U);
  EXPECT_EQ(stages->at(0).state, StageState::kDone);
  EXPECT_EQ(stages->at(1).stage, "generate");
  EXPECT_EQ(stages->at(1).state, StageState::kPending);
  EXPECT_FALSE(stages->at(2).fingerprint.empty());
}

TEST_F(WriteOperationsTest, RatesAreThoseOfTheLastMinute) {
  const std::int64_t later = RealClock().UnixMs() + 3'600'000;
  state_->AddThroughput({.stage = "extract", .at_ms = later, .span_ms = 10'000, .samples = 300, .tokens = 90'000});
  Apply(state_->AddThroughput(
      {.stage = "extract", .at_ms = later + 10'000, .span_ms = 10'000, .samples = 100, .tokens = 10'000}));
  EXPECT_EQ(Progress("extract").samples_per_second, 20.0);
  EXPECT_EQ(Progress("extract").tokens_per_second, 5000.0);
}

TEST_F(WriteOperationsTest, WhatWasNeverPlannedCannotBeWritten) {
  const auto try_out = [&](const StateWriter::Write& write) {
    Status seen;
    Apply(state_->Submit([&](sqlite::Connection& db) {
      seen = write(db);
      return OkStatus();
    }));
    return seen.code();
  };
  EXPECT_EQ(try_out([](auto& db) { return operations::PutWrittenBatch(db, ExampleBatch(5, 0)); }),
            StatusCode::kInternal);
  EXPECT_EQ(try_out([&](auto& db) { return operations::PutPublishedShard(db, ExampleShard(shape_, 3, 3), 0); }),
            StatusCode::kInternal);
  EXPECT_EQ(try_out([](auto& db) { return operations::PutTokenizedChunk(db, {.chunk = 99}); }), StatusCode::kInternal);
}

}  // namespace
}  // namespace draftmill

#include "stages/write/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/shard_example.h"
#include "formats/shard_reader.h"
#include "state/faulty_file_system.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::HasSubstr;

constexpr std::size_t kTokenValues = 8;  // L * H of the example

class ShardWriterTest : public testing::Test {
 protected:
  ShardSource Source(std::int64_t shard = 0) const {
    return {.chunk = &chunk_, .plan = &plan_, .convention = &convention_, .shard = shard};
  }

  // What an engine would give: values that depend on chunk, sample and token alone.
  BatchStates States(std::int64_t batch) const {
    BatchStates states;
    states.chunk = chunk_.chunk;
    states.batch = static_cast<std::int32_t>(batch);
    const PlanRange range = plan_.batches[static_cast<std::size_t>(batch)];
    for (std::int64_t place = range.first; place < range.first + range.count; ++place) {
      const auto sample = static_cast<std::size_t>(plan_.order[static_cast<std::size_t>(place)]);
      states.keys.push_back({chunk_.sample_id[sample], chunk_.variant[sample]});
      states.token_hashes.push_back(chunk_.token_hash[sample]);
      states.sample_state.push_back(0);
      for (auto token = chunk_.cu_seqlens[sample]; token < chunk_.cu_seqlens[sample + 1]; ++token) {
        for (std::size_t value = 0; value < kTokenValues; ++value) {
          states.hidden_states.push_back(static_cast<std::uint16_t>(0x3f80 + 16 * token + static_cast<int>(value)));
        }
      }
    }
    return states;
  }

  // Writes whatever is missing and publishes; `rows` are what the database holds, and is brought up to date.
  Result<PublishedShard> Finish(FileSystem& files, std::vector<WrittenBatch>& rows, std::int64_t shard = 0) const {
    DRAFTMILL_ASSIGN_OR_RETURN(auto writer, ShardWriter::Open(files, folder_.path(), Source(shard), rows));
    for (const std::int64_t batch : writer->missing()) {
      std::erase_if(rows, [&](const WrittenBatch& row) { return row.batch == batch; });
    }
    for (const std::int64_t batch : writer->missing()) {
      DRAFTMILL_ASSIGN_OR_RETURN(const WrittenBatch row, writer->WriteBatch(States(batch)));
      rows.push_back(row);
    }
    return writer->Publish();
  }

  std::string Content(std::int64_t shard = 0) const {
    return RealFileSystem().ReadAll(Path(shard)).ok() ? *RealFileSystem().ReadAll(Path(shard)) : "";
  }
  std::string Path(std::int64_t shard = 0) const { return JoinPath(folder_.path(), ShardPath(12, shard)); }

  FileSystem& files_ = RealFileSystem();
  TemporaryFolder folder_;
  TokenizedChunk chunk_ = ExampleShardChunk();
  ChunkPlan plan_ = ExamplePlan();
  ShardConvention convention_ = ExampleConvention();
  std::vector<BatchStates> large_;
};

TEST_F(ShardWriterTest, AWrittenShardReadsBack) {
  std::vector<WrittenBatch> rows;
  const Result<PublishedShard> shard = Finish(files_, rows);
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  EXPECT_EQ(shard->file.path, "shards/000012/c000012-s000.safetensors");
  EXPECT_EQ(shard->samples, 5);
  EXPECT_EQ(shard->tokens, 15);
  EXPECT_EQ(shard->batches, rows);
  EXPECT_TRUE(shard->quarantined.empty());
  EXPECT_EQ(files_.Stat(Path())->size_bytes, shard->file.bytes);

  Result<ShardReader> reader = ShardReader::Open(files_, Path());
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const ShardContents& contents = reader->contents();
  EXPECT_EQ(contents.cu_seqlens, (std::vector<std::int64_t>{0, 3, 5, 6, 10, 15}));
  EXPECT_EQ(contents.batch_offsets, (std::vector<std::int64_t>{0, 2, 4, 5}));
  EXPECT_EQ(contents.sample_id, (std::vector<std::int64_t>{12000, 12001, 12000, 12002, 12001}));
  EXPECT_EQ(contents.variant, (std::vector<std::int32_t>{0, 1, 1, 0, 0}));
  EXPECT_EQ(contents.input_ids[3], 300);
  EXPECT_EQ(contents.loss_mask, (std::vector<std::uint8_t>{0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1}));
  const Result<std::vector<std::uint16_t>> states = reader->ReadStates(1);
  ASSERT_TRUE(states.ok());
  EXPECT_EQ(states->front(), 0x3f80 + 16 * 9);
  const Result<ShardCheck> check = reader->CheckBytes();
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->digest, shard->file.digest);
  EXPECT_TRUE(check->damaged_samples.empty());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(check->batch_digests[i], rows[i].digest);
}

/// Large batches are hashed while they are written, past the page cache, and begin within a block of the disk.
TEST_F(ShardWriterTest, LargeBatchesGiveTheDigestsOfTheirBytes) {
  chunk_ = ExampleChunk(12, {3, 1500, 700, 900});
  plan_ = ExamplePlan();
  plan_.order = {0, 1, 2, 3};
  plan_.batches = {{0, 2}, {2, 2}};
  plan_.shards = {{0, 2}};
  plan_.batch_tokens = {1503, 1600};
  convention_.hidden_size = 4 * 900;  // 14,400 bytes a token
  std::vector<WrittenBatch> rows;
  for (const std::int64_t batch : {0, 1}) {
    large_.push_back(States(batch));
    large_.back().hidden_states.resize(
        static_cast<std::size_t>(plan_.batch_tokens[static_cast<std::size_t>(batch)] * 7200));
    for (std::size_t i = 0; i < large_.back().hidden_states.size(); ++i) {
      large_.back().hidden_states[i] = static_cast<std::uint16_t>(i * 7919 + static_cast<std::size_t>(batch));
    }
  }
  auto writer = ShardWriter::Open(files_, folder_.path(), Source(), {}).value();
  for (const std::int64_t batch : {1, 0}) {
    const Result<WrittenBatch> row = writer->WriteBatch(large_[static_cast<std::size_t>(batch)]);
    ASSERT_TRUE(row.ok()) << row.status().ToString();
    rows.push_back(*row);
  }
  const Result<PublishedShard> shard = writer->Publish();
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  Result<ShardReader> reader = ShardReader::Open(files_, Path());
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const Result<ShardCheck> check = reader->CheckBytes();
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->digest, shard->file.digest);
  EXPECT_TRUE(check->damaged_samples.empty());
  EXPECT_EQ(check->batch_digests[0], rows[1].digest);
  EXPECT_EQ(check->batch_digests[1], rows[0].digest);
  const Result<std::vector<std::uint16_t>> states = reader->ReadStates(1);
  ASSERT_TRUE(states.ok());
  EXPECT_TRUE(std::equal(states->begin(), states->end(), large_[0].hidden_states.begin() + 3 * 7200));
}

TEST_F(ShardWriterTest, TheOrderOfBatchesDoesNotMatter) {
  std::vector<WrittenBatch> rows;
  ASSERT_TRUE(Finish(files_, rows).ok());
  const std::string expected = Content();
  ASSERT_TRUE(files_.Remove(Path()).ok());
  auto writer = ShardWriter::Open(files_, folder_.path(), Source(), {});
  ASSERT_TRUE(writer.ok());
  for (const std::int64_t batch : {2, 0, 1, 0}) ASSERT_TRUE((*writer)->WriteBatch(States(batch)).ok());
  ASSERT_TRUE((*writer)->Publish().ok());
  EXPECT_EQ(Content(), expected);
}

TEST_F(ShardWriterTest, ABatchOfOtherSamplesOrTokensIsRefusedByName) {
  auto writer = ShardWriter::Open(files_, folder_.path(), Source(), {});
  ASSERT_TRUE(writer.ok());
  const auto refusal = [&](const BatchStates& states) {
    const Result<WrittenBatch> result = (*writer)->WriteBatch(states);
    EXPECT_EQ(result.status().code(), StatusCode::kCorrupt);
    return result.status().message();
  };
  BatchStates states = States(0);
  states.token_hashes[1] ^= 1;
  EXPECT_THAT(refusal(states), HasSubstr("batch 0: sample 12001/1 was computed from other tokens"));
  states = States(0);
  std::swap(states.keys[0], states.keys[1]);
  EXPECT_THAT(refusal(states), HasSubstr("place 0 holds sample 12001/1, planned is sample 12000/0"));
  states = States(0);
  states.hidden_states.pop_back();
  EXPECT_THAT(refusal(states), HasSubstr("78 bytes of states, planned are 2 and 80"));
  states = States(0);
  states.chunk = 11;
  EXPECT_THAT(refusal(states), HasSubstr("chunk 11"));
  EXPECT_THAT(refusal(States(3)), HasSubstr("no such batch"));
  EXPECT_EQ((*writer)->missing(), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ((*writer)->Publish().status().code(), StatusCode::kInternal);
}

TEST_F(ShardWriterTest, AQuarantinedSampleIsZeroedMarkedAndSurvivesAResume) {
  BatchStates states = States(1);
  states.sample_state[1] = 1;
  std::vector<WrittenBatch> rows;
  {
    auto writer = ShardWriter::Open(files_, folder_.path(), Source(), {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ((*writer)->WriteBatch(states).status().code(), StatusCode::kInternal) << "states were not zeroed";
    std::fill(states.hidden_states.begin() + kTokenValues, states.hidden_states.end(), std::uint16_t{0});
    const Result<WrittenBatch> row = (*writer)->WriteBatch(states);
    ASSERT_TRUE(row.ok()) << row.status().ToString();
    rows.push_back(*row);
  }
  const Result<PublishedShard> shard = Finish(files_, rows);
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  ASSERT_EQ(shard->quarantined.size(), 1U);
  EXPECT_EQ(shard->quarantined[0], (SampleKey{12002, 0}));
  Result<ShardReader> reader = ShardReader::Open(files_, Path());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->contents().sample_state, (std::vector<std::uint8_t>{0, 0, 0, 1, 0}));
  EXPECT_EQ(reader->contents().loss_mask[7], 0);
  const Result<ShardCheck> check = reader->CheckBytes();
  ASSERT_TRUE(check.ok());
  EXPECT_TRUE(check->damaged_samples.empty());
  EXPECT_EQ(check->digest, shard->file.digest);
  const Result<PublishedShard> adopted = AdoptShard(files_, folder_.path(), Source());
  ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
  EXPECT_EQ(adopted->file, shard->file);
  EXPECT_EQ(adopted->quarantined, shard->quarantined);
}

TEST_F(ShardWriterTest, AResumeKeepsIntactBatchesAndDropsTheOthers) {
  std::vector<WrittenBatch> rows;
  ASSERT_TRUE(Finish(files_, rows).ok());
  const std::string expected = Content();
  ASSERT_TRUE(ReopenShard(files_, folder_.path(), 12, 0).ok());
  ASSERT_TRUE(ReopenShard(files_, folder_.path(), 12, 0).ok());
  std::string damaged = expected;
  const ShardLayout layout = *LayOutShard(12, chunk_.cu_seqlens, plan_, 0, convention_);
  const auto at = static_cast<std::size_t>(layout.batches[1].offset);
  damaged[at] = static_cast<char>(damaged[at] ^ 1);
  ASSERT_TRUE(files_.WriteAtomically(Path() + ".partial", damaged).ok());
  {
    auto writer = ShardWriter::Open(files_, folder_.path(), Source(), rows);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ((*writer)->missing(), (std::vector<std::int64_t>{1}));
  }
  ASSERT_TRUE(Finish(files_, rows).ok());
  EXPECT_EQ(Content(), expected);
}

TEST_F(ShardWriterTest, APartialFileOfAnotherConventionIsBegunAnew) {
  auto first = ShardWriter::Open(files_, folder_.path(), Source(), {});
  ASSERT_TRUE(first.ok());
  const Result<WrittenBatch> row = (*first)->WriteBatch(States(0));
  ASSERT_TRUE(row.ok());
  convention_.extract_fingerprint = "e2";
  auto second = ShardWriter::Open(files_, folder_.path(), Source(), std::vector<WrittenBatch>{*row});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->missing().size(), 3U);
}

TEST_F(ShardWriterTest, AFileWithoutARowIsAdoptedOnlyIfItIsExactlyRight) {
  EXPECT_EQ(AdoptShard(files_, folder_.path(), Source()).status().code(), StatusCode::kNotFound);
  std::vector<WrittenBatch> rows;
  const Result<PublishedShard> shard = Finish(files_, rows);
  ASSERT_TRUE(shard.ok());
  const Result<PublishedShard> adopted = AdoptShard(files_, folder_.path(), Source());
  ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
  EXPECT_EQ(adopted->file, shard->file);
  EXPECT_EQ(adopted->batches, shard->batches);

  // Not one byte may differ, wherever it stands.
  const std::string right = Content();
  const ShardLayout layout = *LayOutShard(12, chunk_.cu_seqlens, plan_, 0, convention_);
  std::vector<std::int64_t> places = {0, 9, layout.states_offset() - 1};
  for (auto at = layout.states_offset(); at < layout.file_bytes(); at += 7) places.push_back(at);
  places.push_back(layout.file_bytes() - 1);
  for (const std::int64_t at : places) {
    std::string damaged = right;
    damaged[static_cast<std::size_t>(at)] = static_cast<char>(damaged[static_cast<std::size_t>(at)] ^ 0x10);
    ASSERT_TRUE(files_.WriteAtomically(Path(), damaged).ok());
    EXPECT_EQ(AdoptShard(files_, folder_.path(), Source()).status().code(), StatusCode::kCorrupt) << "byte " << at;
    Result<ShardReader> reader = ShardReader::Open(files_, Path());
    if (!reader.ok()) continue;
    const Result<ShardCheck> check = reader->CheckBytes();
    ASSERT_TRUE(check.ok());
    EXPECT_NE(check->digest, shard->file.digest) << "byte " << at;
  }
  ASSERT_TRUE(files_.WriteAtomically(Path(), right).ok());
  plan_.plan_hash = HashBytes128("another plan");
  EXPECT_EQ(AdoptShard(files_, folder_.path(), Source()).status().code(), StatusCode::kCorrupt);
}

// Every change of the disk is interrupted once; what is then found is nothing published or the right bytes, and the
// next run, which knows only the rows that were written, ends with the right bytes.
TEST_F(ShardWriterTest, APowerCutAnywhereLeavesNothingOrTheRightBytes) {
  std::vector<WrittenBatch> rows;
  ASSERT_TRUE(Finish(files_, rows).ok());
  const std::string expected = Content();
  ASSERT_TRUE(files_.RemoveTree(JoinPath(folder_.path(), "shards")).ok());
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kNamesSurvive}) {
    int interrupted = 0;
    for (int nth = 1;; ++nth) {
      FaultyFileSystem faulty(RealFileSystem(), folder_.path());
      int changes = 0;
      faulty.SetHook([&](std::string_view) { return ++changes >= nth ? IoError("power cut") : OkStatus(); });
      rows.clear();
      const bool done = Finish(faulty, rows).ok();
      faulty.SetHook(nullptr);
      ASSERT_TRUE(faulty.PowerCut(unsynced).ok());
      const bool published = RealFileSystem().Exists(Path());
      if (published) {
        EXPECT_EQ(Content(), expected) << "after change " << nth;
      }
      const auto kept_rows = rows.size();
      if (!published) {
        auto writer = ShardWriter::Open(faulty, folder_.path(), Source(), rows);
        ASSERT_TRUE(writer.ok()) << writer.status().ToString();
        EXPECT_EQ((*writer)->missing().size(), 3 - kept_rows) << "a batch with a row was lost, change " << nth;
      }
      EXPECT_FALSE(done && !published) << "published, then lost";
      ASSERT_TRUE(Finish(faulty, rows).ok());
      EXPECT_EQ(Content(), expected) << "resumed after change " << nth;
      ASSERT_TRUE(faulty.RemoveTree(JoinPath(folder_.path(), "shards")).ok());
      if (done) break;
      ++interrupted;
    }
    EXPECT_GT(interrupted, 15);
  }
}

TEST_F(ShardWriterTest, AFullDiskHarmsNothingAndTheBatchMayBeWrittenAgain) {
  FaultyFileSystem faulty(RealFileSystem(), folder_.path());
  auto writer = ShardWriter::Open(faulty, folder_.path(), Source(), {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->WriteBatch(States(0)).ok());
  faulty.SetFreeBytes(10);
  EXPECT_EQ((*writer)->WriteBatch(States(1)).status().code(), StatusCode::kDiskFull);
  faulty.SetFreeBytes(-1);
  EXPECT_EQ((*writer)->missing(), (std::vector<std::int64_t>{1, 2}));
  ASSERT_TRUE((*writer)->WriteBatch(States(1)).ok());
  ASSERT_TRUE((*writer)->WriteBatch(States(2)).ok());
  faulty.SetFreeBytes(0);
  EXPECT_EQ((*writer)->Publish().status().code(), StatusCode::kDiskFull);
  EXPECT_FALSE(faulty.Exists(Path()));
  faulty.SetFreeBytes(-1);
  const Result<PublishedShard> shard = (*writer)->Publish();
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  EXPECT_EQ(AdoptShard(files_, folder_.path(), Source())->file, shard->file);
}

TEST_F(ShardWriterTest, AfterAFailedSyncTheWriterTrustsNothing) {
  FaultyFileSystem faulty(RealFileSystem(), folder_.path());
  auto writer = ShardWriter::Open(faulty, folder_.path(), Source(), {});
  ASSERT_TRUE(writer.ok());
  faulty.Inject({.point = "sync:", .status = IoError("injected")});
  EXPECT_FALSE((*writer)->WriteBatch(States(0)).ok());
  EXPECT_THAT((*writer)->WriteBatch(States(0)).status().message(), HasSubstr("open it again"));
  std::vector<WrittenBatch> rows;
  EXPECT_TRUE(Finish(faulty, rows).ok());
}

TEST_F(ShardWriterTest, RefusesAHiddenSizeThatLeavesTensorsUnaligned) {
  convention_.hidden_size = 6;
  EXPECT_EQ(ShardWriter::Open(files_, folder_.path(), Source(), {}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(ShardWriter::Open(files_, folder_.path(), {&chunk_, &plan_, &convention_, 2}, {}).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace draftmill

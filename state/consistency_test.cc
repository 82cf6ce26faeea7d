// Values that flipped or were edited, in a database that is well formed.
#include "state/consistency.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "state/example_state.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

/// What contradicts itself anywhere in the database; empty where nothing does.
std::string Find(StateReader& state) {
  const Result<std::string> found = FindContradiction(state.connection());
  if (!found.ok()) return "the query failed: " + found.status().message();
  if (!found->empty()) return *found;
  const Result<std::vector<ChunkRecord>> chunks = state.Chunks();
  for (const ChunkRecord& chunk : *chunks) {
    const std::string in_samples = *FindContradictionInSamples(state.connection(), chunk, *state.Samples(chunk.chunk));
    if (!in_samples.empty()) return in_samples;
  }
  return "";
}

/// What is found after the change, which is taken back.
std::string FindAfter(const std::string& folder, const std::string& change) {
  auto state = StateWriter::Open(folder, {});
  EXPECT_TRUE(state.ok()) << state.status().ToString();
  std::string found;
  const Status undone = (*state)->Wait((*state)->Submit([&](sqlite::Connection& db) -> Status {
    DRAFTMILL_RETURN_IF_ERROR(db.Execute("SAVEPOINT change; " + change));
    EXPECT_GT(*db.QueryInteger("SELECT changes()"), 0) << change;
    const Result<std::string> rows = FindContradiction(db);
    found = rows.ok() ? *rows : "the query failed: " + rows.status().message();
    return db.Execute("ROLLBACK TO change; RELEASE change");
  }));
  EXPECT_TRUE(undone.ok()) << undone.ToString();
  EXPECT_TRUE((*state)->Close().ok());
  return found;
}

class ConsistencyTest : public testing::Test {
 protected:
  ConsistencyTest() {
    auto state = StateWriter::Open(folder_.path(), {.create = true});
    EXPECT_TRUE(state.ok() && FillExample(**state, {}).ok());
    // The example's digests are words.
    const Status filled = (*state)->Wait((*state)->Submit([](sqlite::Connection& db) {
      return db.Execute(R"(
          UPDATE chunks SET ingested_digest = hex(randomblob(16));
          UPDATE chunks SET corpus_digest = hex(randomblob(16)), corpus_bytes = 100 WHERE tokenized;
          UPDATE batches SET digest = hex(randomblob(16)) WHERE state = 'written';
          UPDATE shards SET digest = hex(randomblob(16)),
                            file = printf('shards/%06d/c%06d-s%03d.safetensors', chunk, chunk, shard)
          WHERE state = 'published')");
    }));
    EXPECT_TRUE(filled.ok() && (*state)->Close().ok()) << filled.ToString();
  }
  const TemporaryFolder folder_;
};

TEST_F(ConsistencyTest, FindsNothingInWhatARunWrote) {
  Result<StateReader> state = StateReader::Open(folder_.path());
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(Find(*state), "");
}

TEST_F(ConsistencyTest, FindsValuesThatCannotBe) {
  for (const char* change : {"UPDATE shards SET state = 'planned' WHERE chunk = 1",
                             "UPDATE shards SET digest = '00' WHERE chunk = 1",
                             "UPDATE shards SET file = '../../etc/passwd' WHERE chunk = 1",
                             "UPDATE shards SET bytes = bytes + 1 WHERE chunk = 1",
                             "UPDATE shards SET bytes = 9223372036854775807 WHERE chunk = 1",
                             "UPDATE shards SET samples = -1 WHERE chunk = 1",
                             "UPDATE shards SET first_batch = first_batch + 1 WHERE chunk = 1",
                             "DELETE FROM shards WHERE chunk = 2",
                             "DELETE FROM batches WHERE chunk = 2",
                             "UPDATE batches SET tokens = tokens + 1 WHERE chunk = 0 AND batch = 1",
                             "UPDATE batches SET state = 'planned' WHERE chunk = 0 AND batch = 1",
                             "UPDATE batches SET digest = '' WHERE chunk = 0 AND batch = 1",
                             "UPDATE batches SET shard = 9 WHERE chunk = 0 AND batch = 1",
                             "UPDATE chunks SET shards = 0 WHERE chunk = 1",
                             "UPDATE chunks SET published_tokens = 4611686018427387904",
                             "UPDATE chunks SET corpus_digest = '' WHERE chunk = 0",
                             "UPDATE chunks SET ingested_digest = 'x' WHERE chunk = 0",
                             "UPDATE chunks SET first_sample = first_sample + 1 WHERE chunk = 2",
                             "UPDATE chunks SET rows = rows - 1 WHERE chunk = 2",
                             "UPDATE chunks SET chunk = chunk + 1000 WHERE chunk = 5",
                             "DELETE FROM chunks WHERE chunk = 1"}) {
    const std::string found = FindAfter(folder_.path(), change);
    EXPECT_TRUE(found.starts_with("of chunk ")) << change << ": " << found;
  }
}

TEST_F(ConsistencyTest, FindsSamplesThatAreNotTheirChunks) {
  for (const char* change :
       {"UPDATE samples SET tokens = tokens + 1 WHERE chunk = 0",
        "DELETE FROM samples WHERE chunk = 0 AND position = 3",
        "UPDATE samples SET batch = 1000 WHERE chunk = 0 AND position = 3",
        "UPDATE samples SET sample_id = sample_id + 100000 WHERE chunk = 0 AND position = 3",
        "DELETE FROM conversations WHERE sample_id = 3", "UPDATE conversations SET chunk = 3 WHERE sample_id = 3"}) {
    auto writer = StateWriter::Open(folder_.path(), {});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)
                    ->Wait((*writer)->Submit([&](sqlite::Connection& db) {
                      return db.Execute(
                          "CREATE TABLE kept_samples AS SELECT * FROM samples; "
                          "CREATE TABLE kept_conversations AS SELECT * FROM conversations; " +
                          std::string(change));
                    }))
                    .ok())
        << change;
    {
      Result<StateReader> state = StateReader::Open(folder_.path());
      ASSERT_TRUE(state.ok()) << state.status().ToString();
      EXPECT_TRUE(Find(*state).starts_with("of chunk 0: ")) << change << ": " << Find(*state);
    }
    ASSERT_TRUE(
        (*writer)
            ->Wait((*writer)->Submit([&](sqlite::Connection& db) {
              return db.Execute(
                  "DELETE FROM samples; INSERT INTO samples SELECT * FROM kept_samples; DROP TABLE kept_samples; "
                  "DELETE FROM conversations; INSERT INTO conversations SELECT * FROM kept_conversations; "
                  "DROP TABLE kept_conversations");
            }))
            .ok())
        << change;
    ASSERT_TRUE((*writer)->Close().ok());
  }
}

}  // namespace
}  // namespace draftmill

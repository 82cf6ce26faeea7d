// The global order of rows and what stays of duplicates, against sorting in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "stages/ingest/ingest_fixture.h"

namespace draftmill {
namespace {

/// The rows that stay, in global order, by sorting all of them in memory.
std::vector<std::string> NaiveOrder(const std::vector<std::string>& answers, const IngestOptions& options) {
  struct Known {
    std::uint64_t key;
    Hash128 hash;
    std::size_t row;
  };
  std::vector<Known> rows;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (options.deduplicate && !seen.insert(answers[i]).second) continue;
    const Hash128 hash = HashBytes128(R"({"messages":[{"content":"q","role":"user"},{"content":")" + answers[i] +
                                      R"(","role":"assistant"}]})");
    const std::string_view bytes(reinterpret_cast<const char*>(hash.bytes.data()), 16);
    rows.push_back({options.shuffle_seed ? HashBytes64(bytes, *options.shuffle_seed) : 0, hash, i});
  }
  if (options.shuffle_seed) {
    std::sort(rows.begin(), rows.end(), [](const Known& a, const Known& b) {
      return std::tie(a.key, a.hash, a.row) < std::tie(b.key, b.hash, b.row);
    });
  }
  std::vector<std::string> order;
  for (const Known& row : rows) order.push_back(answers[row.row]);
  return order;
}

TEST_F(IngestTest, GivesTheSameBytesWhateverTheThreadsAndTheMemory) {
  std::mt19937 random(5);
  std::vector<std::string> answers;
  for (int i = 0; i < 3000; ++i) {
    const bool is_repeat = !answers.empty() && random() % 4 == 0;
    answers.push_back(is_repeat ? answers[random() % answers.size()]
                                : std::to_string(random()) + std::string(random() % 60, 'x'));
  }
  for (int i = 0; i < 300; ++i) answers.push_back("often");
  for (int file = 0; file < 3; ++file) {
    std::string text;
    for (std::size_t i = static_cast<std::size_t>(file) * answers.size() / 3;
         i < (static_cast<std::size_t>(file) + 1) * answers.size() / 3; ++i) {
      text += Row("q", answers[i]) + "\n";
    }
    WriteFile(Data(std::to_string(file) + ".jsonl"), text);
  }
  for (const bool deduplicate : {true, false}) {
    for (const bool shuffle : {true, false}) {
      IngestOptions options = Options({"*.jsonl"});
      options.deduplicate = deduplicate;
      if (shuffle) options.shuffle_seed = 7;
      options.chunk_rows = 500;
      options.chunk_bytes = 60000;
      const IngestSummary summary = RunWell(options);
      EXPECT_EQ(Answers(), NaiveOrder(answers, options)) << deduplicate << shuffle;
      const auto expected = PublishedFiles();
      for (const auto& [threads, memory] : std::vector<std::pair<int, std::int64_t>>{{2, 1 << 26}, {4, 5000}}) {
        options.threads = threads;
        options.memory_bytes = memory;
        RunWell(options);
        EXPECT_EQ(PublishedFiles(), expected) << threads << " threads, " << memory << " bytes";
      }
    }
  }
}

TEST_F(IngestTest, SeedsAndContentChangeTheOrder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += Row("q", std::to_string(i)) + "\n";
  WriteFile(Data("a.jsonl"), text);
  IngestOptions options = Options({"a.jsonl"});
  std::set<std::vector<std::string>> orders;
  for (const std::uint64_t seed : {0, 1, 2}) {
    options.shuffle_seed = seed;
    RunWell(options);
    orders.insert(Answers());
  }
  EXPECT_EQ(orders.size(), 3U);
}

}  // namespace
}  // namespace draftmill

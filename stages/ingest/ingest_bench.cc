// Rows a second through ingest: short chat rows, with deduplication and shuffle, from one .jsonl file.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "stages/ingest/ingest.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

class SilentSink : public IngestSink {
 public:
  Status AddChunk(const IngestedChunkFacts&, std::vector<ConversationPlace>) override { return OkStatus(); }
  Status AddFailures(std::vector<Failure>) override { return OkStatus(); }
  void ReportProgress(const IngestProgress&) override {}
};

/// About 200 bytes a row.
void WriteRows(const std::string& path, std::int64_t rows) {
  std::ofstream file(path, std::ios::binary);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::string number = std::to_string(i);
    file << R"({"messages": [{"role": "user", "content": "What is )" << number
         << R"( plus one, please?"}, {"role": "assistant", "content": "It is )" << number
         << R"( and one more, which makes )" << i + 1 << R"( in all. \u00e9"}], "id": ")" << number << "\"}\n";
  }
}

void BM_IngestShortRows(benchmark::State& state) {
  const TemporaryFolder folder;
  const std::int64_t rows = state.range(0);
  WriteRows(folder.path() + "/rows.jsonl", rows);
  IngestOptions options;
  options.sources.push_back({folder.path() + "/rows.jsonl", RowForm::kAuto, {}, {}});
  options.threads = static_cast<int>(state.range(1));
  if (state.range(2) != 0) options.shuffle_seed = 7;
  SilentSink sink;
  for (auto _ : state) {
    const Result<IngestSummary> summary =
        Ingest(options, RealFileSystem(), folder.path() + "/work", sink, [] { return false; });
    if (!summary.ok() || summary->kept() != rows) state.SkipWithError("ingest failed");
  }
  state.counters["rows/s"] =
      benchmark::Counter(static_cast<double>(rows * state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_IngestShortRows)
    ->ArgNames({"rows", "threads", "shuffle"})
    ->Args({200'000, 1, 1})
    ->Args({200'000, 2, 1})
    ->Args({200'000, 2, 0})
    ->Args({1'000'000, 2, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace draftmill

BENCHMARK_MAIN();

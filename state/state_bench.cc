// Rates of the state database: rows of ingest, plans, and single durable writes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "state/example_state.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

constexpr ExampleShape kShape{.chunks = 1, .rows_per_chunk = 4096, .samples_per_batch = 16, .batches_per_shard = 8};

std::unique_ptr<StateWriter> Open(const TemporaryFolder& folder) {
  auto state = StateWriter::Open(folder.path(), {.create = true});
  DRAFTMILL_CHECK(state.ok(), state.status().ToString());
  return std::move(state).value();
}

void Check(const Status& status) { DRAFTMILL_CHECK(status.ok(), status.ToString()); }

/// Rows of ingest, a chunk at a time, committed in groups; an iteration ends when 64 chunks are durable.
void BM_Conversations(benchmark::State& bench) {
  const TemporaryFolder folder;
  const auto state = Open(folder);
  std::int64_t chunk = 0;
  for (auto _ : bench) {
    for (int i = 0; i < 64; ++i) state->PutConversations(ExampleConversations(kShape, chunk++));
    Check(state->Flush());
  }
  bench.SetItemsProcessed(chunk * kShape.rows_per_chunk);
}
BENCHMARK(BM_Conversations)->Iterations(8)->UseRealTime();

/// Plans with their samples, each durable before the next.
void BM_Plans(benchmark::State& bench) {
  const TemporaryFolder folder;
  const auto state = Open(folder);
  std::int64_t chunk = 0;
  for (auto _ : bench) {
    state->PutChunk({.chunk = chunk, .first_sample = chunk * kShape.rows_per_chunk, .rows = kShape.rows_per_chunk});
    Check(state->Wait(state->PutPlan(ExamplePlan(kShape, chunk++))));
  }
  bench.SetItemsProcessed(chunk * kShape.rows_per_chunk);
}
BENCHMARK(BM_Plans)->Iterations(100)->UseRealTime();

/// One small write that must be durable before the next: what a published shard costs.
void BM_DurableWrite(benchmark::State& bench) {
  const TemporaryFolder folder;
  const auto state = Open(folder);
  for (auto _ : bench) Check(state->Wait(state->SetFact("name", "value")));
  bench.SetItemsProcessed(bench.iterations());
}
BENCHMARK(BM_DurableWrite)->UseRealTime();

}  // namespace
}  // namespace draftmill

BENCHMARK_MAIN();

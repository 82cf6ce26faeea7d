// The oneTBB flow graph that chunks pass through (design section 5):
//
//   chunk source -> credit gate -> tokenize (parallel) -> reorder -> account (serial, plan order)
//                -> extract (a thread of its own) -> write (a thread of its own) -> finish -> credits back to the gate
//
// The graph knows nothing of files, databases or models: what happens at each step is given as ChunkSteps. Bodies never
// throw; a step's failure ends the flow: no new chunk is let in, what is whole is drained, the first failure is returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/records.h"
#include "pipeline/flow/credit_ledger.h"
#include "pipeline/flow/writer_pace.h"
#include "stages/extract/extractor.h"
#include "stages/extract/plan.h"
#include "stages/tokenize/tokenize_report.h"

namespace draftmill {

/// A chunk that waits to be let in.
struct ChunkTicket {
  std::int32_t chunk = 0;
  std::int64_t cost_bytes = 0;  ///< what its rows and tokens may take in memory: the credits it needs
};

/// A chunk on its way.
struct ChunkWork {
  ChunkTicket ticket;
  std::size_t position = 0;  ///< in the list of tickets: the order at the serial steps
  TokenizedChunk tokens;
  bool is_tokenized_now = false;  ///< by this pass, not read back
  std::int64_t supervised_tokens = 0;
  TokenizeReport report;      ///< where is_tokenized_now
  std::string corpus_digest;  ///< of the corpus file, hex
  std::int64_t corpus_bytes = 0;
  ChunkPlan plan;
  /// Per planned batch: whether its states still have to be computed and written. Empty: nothing to extract.
  std::vector<bool> batch_wanted;
};

/// What is done at each step. Every function may fail; none may throw.
struct ChunkSteps {
  /// Fills `tokens`. Called from several threads at once.
  std::function<Status(ChunkWork&)> tokenize;
  /// Counts, plans, records. Called for one chunk at a time, in the order of the tickets.
  std::function<Status(ChunkWork&)> account;
  /// Computes the wanted batches and hands each to `emit`. Called from the extraction thread, in order. Not called
  /// where it is empty or nothing is wanted.
  std::function<Status(const ChunkWork&, const std::function<Status(BatchStates)>& emit)> extract;
  /// Stores one batch. Called from the writer's thread.
  std::function<Status(const ChunkWork&, BatchStates)> write;
  /// All wanted batches of the chunk were stored. Called from the writer's thread; where nothing was wanted, from the
  /// serial step.
  std::function<Status(const ChunkWork&)> finish;
  /// How engine and writer spent the last ChunkFlowLimits::pace_span_seconds. Called from the writer's thread; may be empty.
  std::function<void(const WriterSpan&)> paced;
  /// How full the queue of states is, as a share of ChunkFlowLimits::states_queue_bytes: above 1 where one batch is larger
  /// than all of it. Called when a batch comes and when one goes, from the extraction thread and the writer's; may be empty.
  std::function<void(double)> states_queued;
};

/// Bounds of one flow.
struct ChunkFlowLimits {
  int threads = 1;                      ///< of the graph's arena
  std::int64_t chunk_credit_bytes = 0;  ///< rows and tokens in flight
  std::int64_t states_queue_bytes = 0;  ///< states between extraction and writer
  double pace_span_seconds = 30;        ///< after which ChunkSteps::paced is told how it went
};

/// What the buffers held at most, for the report at the end of the run.
struct ChunkFlowPeaks {
  std::int64_t chunk_bytes = 0;
  std::int64_t states_bytes = 0;
};

/// Sends all chunks through. Returns the first failure of a step, kCancelled where `should_stop` became true before the
/// last chunk was let in, or success. Blocks until everything in flight has left.
Status RunChunkFlow(const std::vector<ChunkTicket>& tickets, const ChunkSteps& steps, const ChunkFlowLimits& limits,
                    const std::function<bool()>& should_stop, ChunkFlowPeaks* peaks);

}  // namespace draftmill

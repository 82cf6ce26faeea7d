#include "pipeline/flow/chunk_flow.h"

#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/start_threads.h"
#include "base/steady_seconds.h"
#include "pipeline/flow/byte_queue.h"

namespace draftmill {
namespace {

using WorkPointer = std::shared_ptr<ChunkWork>;

/// The first failure of any step; after one, nothing new is begun.
class FirstFailure {
 public:
  void Record(const Status& status) {
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_.ok()) first_ = status;
    failed_ = true;
  }
  bool Any() const { return failed_; }
  Status Get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  Status first_;
  std::atomic<bool> failed_{false};
};

/// What the gate is told: nothing (start), or that a chunk has left and its credits come back.
struct GateEvent {
  std::int64_t returned_bytes = -1;
};

/// A message to the writer's thread.
struct WriterMessage {
  enum class Kind : std::uint8_t { kBatch, kEnd };
  Kind kind = Kind::kBatch;
  WorkPointer work;
  BatchStates states;
};

/// The extraction thread and the writer's thread, joined by a queue bounded in bytes.
class ExtractAndWrite {
 public:
  ExtractAndWrite(const ChunkSteps& steps, const ChunkFlowLimits& limits, FirstFailure& failure,
                  std::function<void(WorkPointer)> done)
      : steps_(steps),
        chunks_(std::numeric_limits<std::int64_t>::max()),
        states_(limits.states_queue_bytes),
        failure_(failure),
        pace_(limits.pace_span_seconds),
        done_(std::move(done)) {}

  ~ExtractAndWrite() {
    chunks_.Close();
    if (extract_thread_.joinable()) extract_thread_.join();
    states_.Close();
    if (write_thread_.joinable()) write_thread_.join();
  }

  Status Start() {
    DRAFTMILL_ASSIGN_OR_RETURN(extract_thread_, StartThread([this] { ExtractLoop(); }));
    DRAFTMILL_ASSIGN_OR_RETURN(write_thread_, StartThread([this] { WriteLoop(); }));
    return OkStatus();
  }

  /// Never blocks: how many chunks may wait here is bounded by the credits that they hold.
  void Add(WorkPointer work) { chunks_.Push(std::move(work), 0); }
  std::int64_t peak_states_bytes() const { return states_.peak_bytes(); }

 private:
  void ExtractLoop() {
    while (std::optional<WorkPointer> work = chunks_.Pop()) {
      if (!failure_.Any())
        failure_.Record(steps_.extract(**work, [&](BatchStates states) { return Emit(*work, std::move(states)); }));
      states_.Push({WriterMessage::Kind::kEnd, std::move(*work), {}}, 0);
    }
  }

  Status Emit(const WorkPointer& work, BatchStates states) {
    if (failure_.Any()) return failure_.Get();
    const std::int64_t bytes = BytesOf(states);
    const double begin = SteadySeconds();
    states_.Push({WriterMessage::Kind::kBatch, work, std::move(states)}, bytes);
    pace_.EngineWaited(SteadySeconds() - begin);
    TellFill();
    return OkStatus();
  }

  void TellFill() {
    if (!steps_.states_queued || states_.limit_bytes() <= 0) return;
    const std::lock_guard<std::mutex> lock(fill_mutex_);  // what is told last is what is so
    steps_.states_queued(static_cast<double>(states_.held_bytes()) / static_cast<double>(states_.limit_bytes()));
  }

  static std::int64_t BytesOf(const BatchStates& states) {
    return static_cast<std::int64_t>(states.hidden_states.size() * sizeof(states.hidden_states[0]));
  }

  void WriteLoop() {
    while (std::optional<WriterMessage> message = states_.Pop()) {
      if (message->kind == WriterMessage::Kind::kBatch) TellFill();
      if (!failure_.Any()) failure_.Record(Write(*message));
      if (message->kind == WriterMessage::Kind::kEnd) done_(std::move(message->work));
    }
  }

  Status Write(WriterMessage& message) {
    switch (message.kind) {
      case WriterMessage::Kind::kBatch: return WriteBatch(message);
      case WriterMessage::Kind::kEnd: return steps_.finish(*message.work);
    }
    return Internal("unknown writer message");
  }

  Status WriteBatch(WriterMessage& message) {
    const std::int64_t bytes = BytesOf(message.states);
    const double begin = SteadySeconds();
    const Status status = steps_.write(*message.work, std::move(message.states));
    const double end = SteadySeconds();
    const std::optional<WriterSpan> span = pace_.Wrote(end, end - begin, bytes);
    if (span && steps_.paced) steps_.paced(*span);
    return status;
  }

  const ChunkSteps& steps_;
  ByteQueue<WorkPointer> chunks_;
  ByteQueue<WriterMessage> states_;
  FirstFailure& failure_;
  WriterPace pace_;
  const std::function<void(WorkPointer)> done_;
  std::mutex fill_mutex_;
  std::thread extract_thread_;
  std::thread write_thread_;
};

/// The graph of one flow; lives for one RunChunkFlow.
class ChunkFlowGraph {
 public:
  ChunkFlowGraph(const std::vector<ChunkTicket>& tickets, const ChunkSteps& steps, const ChunkFlowLimits& limits,
                 const std::function<bool()>& should_stop)
      : tickets_(tickets),
        steps_(steps),
        should_stop_(should_stop),
        ledger_(limits.chunk_credit_bytes),
        gate_(graph_, tbb::flow::serial,
              [this](const GateEvent& event, GateNode::output_ports_type& ports) { LetIn(event, ports); }),
        tokenize_(graph_, static_cast<std::size_t>(limits.threads),
                  [this](WorkPointer work) { return Tokenize(std::move(work)); }),
        reorder_(graph_, [](const WorkPointer& work) { return work->position; }),
        account_(graph_, tbb::flow::serial, [this](WorkPointer work) { return Account(std::move(work)); }),
        extract_(graph_, tbb::flow::serial,
                 [this](const WorkPointer& work, ExtractNode::gateway_type& gateway) { Hand(work, gateway); }),
        finish_(graph_, tbb::flow::serial, [this](const WorkPointer& work) { return Leave(work); }) {
    if (steps.extract) {
      threads_ = std::make_unique<ExtractAndWrite>(steps, limits, failure_, [this](WorkPointer work) {
        ExtractNode::gateway_type* gateway = gateway_;
        gateway->try_put(std::move(work));
        gateway->release_wait();
      });
    }
    tbb::flow::make_edge(tbb::flow::output_port<0>(gate_), tokenize_);
    tbb::flow::make_edge(tokenize_, reorder_);
    tbb::flow::make_edge(reorder_, account_);
    tbb::flow::make_edge(account_, extract_);
    tbb::flow::make_edge(extract_, finish_);
    tbb::flow::make_edge(finish_, gate_);
  }

  Status Run() {
    if (threads_) DRAFTMILL_RETURN_IF_ERROR(threads_->Start());
    gate_.try_put(GateEvent{});
    graph_.wait_for_all();
    if (failure_.Any()) return failure_.Get();
    if (next_ < tickets_.size()) return Cancelled("stopped on request");
    return OkStatus();
  }

  ChunkFlowPeaks Peaks() const { return {ledger_.peak_bytes(), threads_ ? threads_->peak_states_bytes() : 0}; }

 private:
  using GateNode = tbb::flow::multifunction_node<GateEvent, std::tuple<WorkPointer>>;
  using ExtractNode = tbb::flow::async_node<WorkPointer, WorkPointer>;

  // Serial: credits are granted in plan order, so the reorder step behind can never wait for a chunk without credits.
  void LetIn(const GateEvent& event, GateNode::output_ports_type& ports) {
    if (event.returned_bytes >= 0) ledger_.Return(event.returned_bytes);
    while (next_ < tickets_.size() && !failure_.Any() && !should_stop_() &&
           ledger_.TryTake(tickets_[next_].cost_bytes)) {
      auto work = std::make_shared<ChunkWork>();
      work->ticket = tickets_[next_];
      work->position = next_;
      ++next_;
      std::get<0>(ports).try_put(std::move(work));
    }
  }

  WorkPointer Tokenize(WorkPointer work) {
    if (!failure_.Any()) failure_.Record(steps_.tokenize(*work));
    return work;
  }

  WorkPointer Account(WorkPointer work) {
    if (!failure_.Any()) failure_.Record(steps_.account(*work));
    return work;
  }

  bool NeedsExtraction(const ChunkWork& work) const {
    if (!threads_ || failure_.Any()) return false;
    for (const bool wanted : work.batch_wanted) {
      if (wanted) return true;
    }
    return false;
  }

  void Hand(const WorkPointer& work, ExtractNode::gateway_type& gateway) {
    if (NeedsExtraction(*work)) {
      gateway.reserve_wait();
      gateway_ = &gateway;
      threads_->Add(work);
      return;
    }
    if (!failure_.Any()) failure_.Record(steps_.finish(*work));
    gateway.try_put(work);
  }

  GateEvent Leave(const WorkPointer& work) { return GateEvent{work->ticket.cost_bytes}; }

  const std::vector<ChunkTicket>& tickets_;
  const ChunkSteps& steps_;
  const std::function<bool()>& should_stop_;
  CreditLedger ledger_;
  FirstFailure failure_;
  std::size_t next_ = 0;  // only the gate's serial body touches it while the graph runs
  tbb::flow::graph graph_;
  GateNode gate_;
  tbb::flow::function_node<WorkPointer, WorkPointer> tokenize_;
  tbb::flow::sequencer_node<WorkPointer> reorder_;
  tbb::flow::function_node<WorkPointer, WorkPointer> account_;
  ExtractNode extract_;
  tbb::flow::function_node<WorkPointer, GateEvent> finish_;
  std::atomic<ExtractNode::gateway_type*> gateway_{nullptr};
  std::unique_ptr<ExtractAndWrite> threads_;
};

}  // namespace

Status RunChunkFlow(const std::vector<ChunkTicket>& tickets, const ChunkSteps& steps, const ChunkFlowLimits& limits,
                    const std::function<bool()>& should_stop, ChunkFlowPeaks* peaks) {
  Status status;
  try {
    tbb::task_arena arena(limits.threads);
    arena.execute([&] {
      ChunkFlowGraph flow(tickets, steps, limits, should_stop);
      status = flow.Run();
      if (peaks != nullptr) *peaks = flow.Peaks();
    });
  } catch (const std::exception& error) {
    return Internal(std::string("the flow of chunks broke off: ") + error.what());
  }
  return status;
}

}  // namespace draftmill

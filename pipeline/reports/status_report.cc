#include "pipeline/reports/status_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "formats/manifest.h"
#include "pipeline/exit_status.h"
#include "pipeline/progress/format_units.h"
#include "pipeline/reports/facts_text.h"
#include "pipeline/reports/mask_report.h"
#include "state/run_lock.h"
#include "state/state_place.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

constexpr std::int64_t kEventsShown = 8;
constexpr std::size_t kReasonsShown = 20;

template <typename T>
json::Value OrNull(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

/// How the last run stands. A run without an end whose lock nobody holds was killed.
std::string RunStateName(const RunRecord& run, bool is_running) {
  if (is_running) return "running";
  return run.finished_ms ? "ended" : "interrupted";
}

json::Value RunFacts(const RunRecord& run, std::int64_t starts, bool is_running, Clock& clock) {
  const std::int64_t until_ms = run.finished_ms ? *run.finished_ms : clock.UnixMs();
  json::Object facts = {{"name", run.name},
                        {"starts", starts},
                        {"state", RunStateName(run, is_running)},
                        {"exit_status", OrNull(run.exit_status)},
                        {"started", UtcTime(run.started_ms)},
                        {"program_version", run.program_version},
                        {"host", run.host},
                        {"process_id", run.pid}};
  if (is_running || run.finished_ms) {
    facts.emplace_back("took_seconds",
                       static_cast<double>(std::max<std::int64_t>(0, until_ms - run.started_ms)) / 1000);
  }
  // The summary is JSON that the run wrote; one of another form is shown as it is.
  if (!run.summary.empty()) {
    auto summary = json::Parse(run.summary);
    facts.emplace_back("report", summary.ok() ? *std::move(summary) : json::Value(run.summary));
  }
  return json::Value(std::move(facts));
}

/// Whether every stage has done all there is.
bool IsComplete(const std::vector<ProgressRecord>& progress) {
  return std::all_of(progress.begin(), progress.end(),
                     [](const ProgressRecord& row) { return row.state == "done" && row.done >= row.total; });
}

/// A stage that is begun keeps that state when its run ends; then nothing is left to wait for.
json::Value StageFacts(const std::vector<ProgressRecord>& progress, bool is_running) {
  json::Array stages;
  for (const ProgressRecord& stage : progress) {
    const bool is_left = stage.state == StageStateName(StageState::kRunning) && !is_running;
    stages.push_back(json::Object{{"stage", stage.stage},
                                  {"state", is_left ? "unfinished" : stage.state},
                                  {"done", stage.done},
                                  {"total", stage.total},
                                  {"unit", stage.unit},
                                  {"percent", stage.percent},
                                  {"failed", stage.failed},
                                  {"samples_per_second", OrNull(stage.samples_per_second)},
                                  {"tokens_per_second", OrNull(stage.tokens_per_second)},
                                  {"bytes", stage.bytes},
                                  {"eta_seconds", is_left ? json::Value() : OrNull(stage.eta_seconds)}});
  }
  return json::Value(std::move(stages));
}

json::Value QuarantineFacts(const std::vector<FailureCount>& counts) {
  json::Array reasons;
  for (const FailureCount& count : counts) {
    if (reasons.size() == kReasonsShown) break;
    reasons.push_back(json::Object{
        {"stage", count.stage}, {"reason", count.reason}, {"failures", count.failures}, {"example", count.example}});
  }
  return json::Value(std::move(reasons));
}

json::Value ShardFacts(const std::vector<ShardStateCount>& counts) {
  json::Array states;
  for (const ShardStateCount& count : counts) {
    states.push_back(json::Object{{"state", ShardStateName(count.state)},
                                  {"shards", count.shards},
                                  {"samples", count.samples},
                                  {"tokens", count.tokens},
                                  {"bytes", count.bytes}});
  }
  return json::Value(std::move(states));
}

Result<json::Value> LastEvents(StateReader& state) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t last,
                             state.connection().QueryInteger("SELECT coalesce(max(event), 0) FROM events"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<EventRecord> events, state.Events(last - kEventsShown, kEventsShown));
  json::Array list;
  for (const EventRecord& event : events) {
    list.push_back(
        json::Object{{"at", UtcTime(event.at_ms)}, {"level", EventLevelName(event.level)}, {"text", event.text}});
  }
  return json::Value(std::move(list));
}

std::string Plural(std::int64_t count, const std::string& noun) {
  return FormatCount(count) + " " + noun + (count == 1 ? "" : "s");
}

/// A member of the facts that is known to be there.
const json::Value& At(const json::Value& object, std::string_view name) {
  const json::Value* member = object.Find(name);
  DRAFTMILL_CHECK(member != nullptr, "no member " + std::string(name));
  return *member;
}

std::string HeadLine(const json::Value& run) {
  const std::string state = At(run, "state").as_string();
  std::string line = "run " + At(run, "name").as_string() + " " + state;
  if (state == "running") {
    line += " for " + FormatSeconds(At(run, "took_seconds").as_double()) + ", process " +
            std::to_string(At(run, "process_id").as_integer()) + " on " + At(run, "host").as_string();
  } else if (state == "ended") {
    line += fmt::format(" with status {} after {}",
                        At(run, "exit_status").is_null() ? -1 : At(run, "exit_status").as_integer(),
                        FormatSeconds(At(run, "took_seconds").as_double()));
  } else {
    line += " (the process is gone; what was published is safe): run again to continue";
  }
  return line + ". Started " + At(run, "started").as_string() + ", " + Plural(At(run, "starts").as_integer(), "start") +
         ".";
}

/// One row of the table of stages, with done and total in their unit.
json::Value StageRow(const json::Value& stage) {
  const auto count = [&](std::string_view name) {
    const std::int64_t number = At(stage, name).as_integer();
    return At(stage, "unit").as_string() == "bytes" ? FormatBytes(number) : FormatCount(number);
  };
  const auto rate = [&](std::string_view name) {
    const json::Value& value = At(stage, name);
    return value.is_null() ? std::string() : FormatRate(value.as_double());
  };
  const json::Value& eta = At(stage, "eta_seconds");
  const bool has_eta = !eta.is_null() && eta.as_integer() > 0;
  const std::string unit = At(stage, "unit").as_string();
  return json::Object{{"stage", At(stage, "stage")},
                      {"state", At(stage, "state")},
                      {"done", count("done") + " of " + count("total") + (unit == "bytes" ? "" : " " + unit)},
                      {"%", fmt::format("{:.1f}", At(stage, "percent").as_double())},
                      {"failed", At(stage, "failed")},
                      {"samples/s", rate("samples_per_second")},
                      {"tokens/s", rate("tokens_per_second")},
                      {"written", FormatBytes(At(stage, "bytes").as_integer())},
                      {"ETA", has_eta ? FormatSeconds(static_cast<double>(eta.as_integer())) : std::string()}};
}

}  // namespace

std::string UtcTime(std::int64_t unix_ms) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  std::array<char, 64> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return std::string(text.data(), length);
}

Result<RunStatus> ReadRunStatus(FileSystem& files, const std::string& work_folder, Clock& clock) {
  const Status not_started = InvalidConfig("no run was started in " + work_folder + ": it has no state.db");
  auto opened = StateReader::Open(work_folder, files);
  if (opened.status().code() == StatusCode::kNotFound) {
    // A link to a database that is not on this machine is a run all the same.
    const Status placed = PlaceState(files, work_folder, std::nullopt);
    return placed.code() == StatusCode::kNotFound ? InvalidConfig(placed.message()) : not_started;
  }
  if (!opened.ok()) return opened.status();
  StateReader state = std::move(opened).value();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<LockOwner> owner, RunLock::Peek(work_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<RunRecord> runs, state.Runs());
  if (runs.empty()) return not_started;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ProgressRecord> progress, state.Progress());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardStateCount> shards, state.ShardsByState());
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardStateCount discarded, state.DiscardedShards());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FailureCount> failures, state.FailuresByReason());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ReportCounter> mask, state.MaskReport());
  DRAFTMILL_ASSIGN_OR_RETURN(json::Value events, LastEvents(state));

  const RunRecord& last = runs.back();
  RunStatus status;
  status.mask_lines = MaskLines(mask);
  status.is_running = owner.has_value() && !last.finished_ms;
  status.exit_status = last.finished_ms && last.exit_status ? static_cast<int>(*last.exit_status) : kExitRunAgain;
  // A run that ended well may have left work: it was told to go no further, or damage was marked since.
  const bool ended_well = status.exit_status == kExitComplete || status.exit_status == kExitQuarantined;
  if (ended_well && !IsComplete(progress)) status.exit_status = kExitRunAgain;
  status.facts = json::Object{{"work", work_folder},
                              {"run", RunFacts(last, static_cast<std::int64_t>(runs.size()), status.is_running, clock)},
                              {"stages", StageFacts(progress, status.is_running)},
                              {"mask", MaskFacts(mask)},
                              {"shards", ShardFacts(shards)},
                              {"discarded_shards", discarded.shards},
                              {"quarantine", QuarantineFacts(failures)},
                              {"events", std::move(events)}};
  return status;
}

std::string StatusAsText(const RunStatus& status) {
  std::string text = HeadLine(At(status.facts, "run")) + "\n";
  const std::int64_t discarded = At(status.facts, "discarded_shards").as_integer();
  if (discarded > 0) text += "WARNING: " + DiscardedShardsNote(discarded) + ".\n";
  text += "\n";
  json::Array rows;
  for (const json::Value& stage : At(status.facts, "stages").as_array()) rows.push_back(StageRow(stage));
  text += FactsAsText(json::Value(std::move(rows)));
  if (!status.mask_lines.empty()) text += "\nmask:\n";
  for (const std::string& line : status.mask_lines) text += "  " + line + "\n";
  for (const char* section : {"shards", "quarantine", "events"}) {
    const json::Value& list = At(status.facts, section);
    if (!list.as_array().empty()) text += "\n" + FactsAsText(json::Object{{section, list}});
  }
  return text;
}

}  // namespace draftmill

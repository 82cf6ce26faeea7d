#include "pipeline/reports/quarantine_report.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "stages/ingest/ingested_rows.h"
#include "stages/ingest/rejected_rows.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPageFailures = 1000;
constexpr std::string_view kIngest = "ingest";

/// Ends the walk through the refused rows early; never seen outside.
Status FoundIt() { return Cancelled("found"); }

/// Failures as JSON, with the names of the source files.
class FailureFacts {
 public:
  static Result<FailureFacts> Create(StateReader& state) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SourceRecord> sources, state.Sources());
    FailureFacts facts;
    for (const SourceRecord& source : sources) facts.files_.emplace_back(source.source, source.path);
    return facts;
  }

  json::Value Of(const FailureRecord& failure) const {
    json::Object facts = {
        {"failure", failure.failure},         {"stage", failure.stage},     {"reason", failure.reason},
        {"file", FileOf(failure.source)},     {"row", failure.row},         {"line", failure.line},
        {"byte_offset", failure.byte_offset}, {"sample_id", json::Value()}, {"message", failure.message}};
    if (failure.sample_id >= 0) {
      facts[7].second = failure.sample_id;
      facts.insert(facts.begin() + 8, {"variant", failure.variant});
    }
    return json::Value(std::move(facts));
  }

 private:
  std::string FileOf(std::int64_t source) const {
    for (const auto& [number, path] : files_) {
      if (number == source) return path;
    }
    return "";
  }

  std::vector<std::pair<std::int64_t, std::string>> files_;
};

/// The ingested rows of the chunk that was asked for last.
class IngestedRowCache {
 public:
  IngestedRowCache(FileSystem& files, std::string work_folder) : files_(files), work_folder_(std::move(work_folder)) {}

  /// Adds the conversation, where the work folder still has it.
  void AddConversation(const FailureRecord& failure, json::Value& facts) {
    if (failure.sample_id < 0 || failure.chunk < 0) return;
    if (!chunk_ || chunk_->chunk != failure.chunk) {
      auto read = ReadIngestedChunk(files_, work_folder_, static_cast<std::int32_t>(failure.chunk));
      if (!read.ok()) {
        facts.Set("conversation_missing", read.status().message());
        return;
      }
      chunk_ = std::move(read).value();
    }
    for (const IngestedRow& row : chunk_->rows) {
      if (row.sample_id == failure.sample_id) facts.Set("conversation", row.conversation);
    }
  }

 private:
  FileSystem& files_;
  std::string work_folder_;
  std::optional<IngestedChunk> chunk_;
};

/// Adds the row as it stood in its source, where ingest kept it.
Status AddRejectedRow(FileSystem& files, const std::string& work_folder, const FailureRecord& failure,
                      json::Value& facts) {
  const Status walked = ForEachRejectedRow(files, work_folder, [&](const json::Value& row) {
    const json::Value* source = row.Find("source");
    const json::Value* number = row.Find("row");
    if (source == nullptr || number == nullptr || *source != json::Value(failure.source) ||
        *number != json::Value(failure.row)) {
      return OkStatus();
    }
    if (const json::Value* raw = row.Find("raw"); raw != nullptr) facts.Set("raw", *raw);
    return FoundIt();
  });
  if (!walked.ok() && walked.code() != StatusCode::kCancelled) facts.Set("raw_missing", walked.message());
  return OkStatus();
}

/// What ingest refused, from its own file, which holds the rows. Nothing is emitted where the file is not there.
Status ExportRejectedRows(FileSystem& files, const std::string& work_folder, const QuarantineQuery& query,
                          const std::function<Status(const json::Value&)>& emit) {
  return ForEachRejectedRow(files, work_folder, [&](const json::Value& row) {
    const json::Value* reason = row.Find("reason");
    const bool wanted = query.reason.empty() || (reason != nullptr && *reason == json::Value(query.reason));
    if (!wanted) return OkStatus();
    json::Value facts = json::Object{{"stage", kIngest}};
    for (const auto& [name, value] : row.as_object()) facts.Set(name, value);
    return emit(facts);
  });
}

}  // namespace

Result<json::Value> ListQuarantine(FileSystem& files, const std::string& work_folder, const QuarantineQuery& query) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const FailureFacts facts, FailureFacts::Create(state));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FailureCount> counts, state.FailuresByReason());
  json::Array reasons;
  for (const FailureCount& count : counts) {
    if (!query.stage.empty() && count.stage != query.stage) continue;
    if (!query.reason.empty() && count.reason != query.reason) continue;
    reasons.push_back(json::Object{{"stage", count.stage}, {"reason", count.reason}, {"failures", count.failures}});
  }
  DRAFTMILL_ASSIGN_OR_RETURN(
      std::vector<FailureRecord> page,
      state.Failures({.stage = query.stage, .reason = query.reason, .after = query.after, .limit = query.limit + 1}));
  const bool more = static_cast<std::int64_t>(page.size()) > query.limit;
  if (more) page.pop_back();
  json::Array failures;
  for (const FailureRecord& failure : page) failures.push_back(facts.Of(failure));
  return json::Value(json::Object{{"reasons", std::move(reasons)}, {"failures", std::move(failures)}, {"more", more}});
}

Result<json::Value> ShowFailure(FileSystem& files, const std::string& work_folder, std::int64_t failure) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const FailureFacts facts_of, FailureFacts::Create(state));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FailureRecord> found,
                             state.Failures({.stage = {}, .reason = {}, .after = failure - 1, .limit = 1}));
  if (found.empty() || found.front().failure != failure) {
    return NotFound("there is no failure " + std::to_string(failure) + " in " + work_folder +
                    "; `draftmill quarantine TARGET list` shows their numbers");
  }
  json::Value facts = facts_of.Of(found.front());
  if (found.front().stage == kIngest) {
    DRAFTMILL_RETURN_IF_ERROR(AddRejectedRow(files, work_folder, found.front(), facts));
  } else {
    IngestedRowCache(files, work_folder).AddConversation(found.front(), facts);
  }
  return facts;
}

Status ExportQuarantine(FileSystem& files, const std::string& work_folder, const QuarantineQuery& query,
                        const std::function<Status(const json::Value&)>& emit) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const FailureFacts facts_of, FailureFacts::Create(state));
  const bool has_rejected_rows = files.Exists(RejectedRowsPath(work_folder));
  if (has_rejected_rows && (query.stage.empty() || query.stage == kIngest)) {
    DRAFTMILL_RETURN_IF_ERROR(ExportRejectedRows(files, work_folder, query, emit));
  }
  IngestedRowCache rows(files, work_folder);
  std::int64_t after = 0;
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(
        const std::vector<FailureRecord> page,
        state.Failures({.stage = query.stage, .reason = query.reason, .after = after, .limit = kPageFailures}));
    if (page.empty()) return OkStatus();
    after = page.back().failure;
    for (const FailureRecord& failure : page) {
      if (failure.stage == kIngest && has_rejected_rows) continue;
      json::Value facts = facts_of.Of(failure);
      rows.AddConversation(failure, facts);
      DRAFTMILL_RETURN_IF_ERROR(emit(facts));
    }
  }
}

std::optional<std::string> RowOfFailure(const json::Value& exported) {
  if (const json::Value* raw = exported.Find("raw"); raw != nullptr && raw->is_string()) {
    std::string row = raw->as_string();
    // A row of a file that is one list may span lines; between values a space is as good.
    std::replace(row.begin(), row.end(), '\n', ' ');
    return row;
  }
  if (const json::Value* conversation = exported.Find("conversation"); conversation != nullptr)
    return json::Write(*conversation);
  return std::nullopt;
}

}  // namespace draftmill

#include "pipeline/run/run_report.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <utility>

#include "base/shell_word.h"
#include "formats/manifest.h"
#include "pipeline/exit_status.h"
#include "pipeline/progress/format_units.h"
#include "pipeline/reports/mask_report.h"
#include "pipeline/run/self_check_step.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

/// Totals of a work folder.
struct Totals {
  std::int64_t rows = 0;
  std::int64_t kept = 0;
  std::int64_t duplicates = 0;
  std::int64_t rejected = 0;
  std::int64_t not_taken = 0;
  std::int64_t chunks = 0;
  std::int64_t tokenized_chunks = 0;
  std::int64_t samples = 0;
  std::int64_t rows_without_sample = 0;
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t batches = 0;
  std::int64_t written_batches = 0;
  std::int64_t shards = 0;
  std::int64_t published_shards = 0;
  std::int64_t published_samples = 0;
  std::int64_t published_bytes = 0;
  std::int64_t discarded_shards = 0;
  std::int64_t quarantined = 0;
  std::vector<FailureCount> failures;
  std::vector<ReportCounter> mask;
};

Totals Sum(const std::vector<SourceRecord>& sources, const std::vector<ChunkRecord>& chunks) {
  Totals totals;
  for (const SourceRecord& source : sources) {
    totals.rows += source.rows;
    totals.kept += source.kept;
    totals.duplicates += source.duplicates;
    totals.rejected += source.rejected;
    totals.not_taken += source.not_taken;
  }
  totals.chunks = static_cast<std::int64_t>(chunks.size());
  for (const ChunkRecord& chunk : chunks) {
    totals.batches += chunk.batches;
    totals.written_batches += chunk.extracted_batches;
    totals.shards += chunk.shards;
    totals.published_shards += chunk.published_shards;
    totals.published_samples += chunk.published_samples;
    totals.published_bytes += chunk.published_bytes;
    totals.quarantined += chunk.quarantined;
    if (!chunk.tokenized) continue;
    ++totals.tokenized_chunks;
    totals.samples += chunk.samples;
    totals.rows_without_sample += chunk.tokenize_failed;
    totals.tokens += chunk.tokens;
    totals.supervised_tokens += chunk.supervised_tokens;
  }
  return totals;
}

Result<Totals> ReadTotals(const std::string& work_folder, FileSystem& files) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SourceRecord> sources, state.Sources());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  Totals totals = Sum(sources, chunks);
  DRAFTMILL_ASSIGN_OR_RETURN(totals.failures, state.FailuresByReason());
  DRAFTMILL_ASSIGN_OR_RETURN(totals.mask, state.MaskReport());
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardStateCount discarded, state.DiscardedShards());
  totals.discarded_shards = discarded.shards;
  return totals;
}

json::Value Facts(const ReportInput& input, const Totals& totals, int exit_status) {
  json::Array failures;
  for (const FailureCount& failure : totals.failures) {
    failures.push_back(json::Object{{"stage", failure.stage}, {"reason", failure.reason}, {"rows", failure.failures}});
  }
  return json::Object{{"exit_status", exit_status},
                      {"error", input.status.ok() ? json::Value() : json::Value(input.status.ToString())},
                      {"work", input.work_folder},
                      {"up_to_date", input.status.ok() && !input.did_work},
                      {"seconds", input.seconds},
                      {"rows", json::Object{{"read", totals.rows},
                                            {"kept", totals.kept},
                                            {"duplicates", totals.duplicates},
                                            {"rejected", totals.rejected},
                                            {"not_taken", totals.not_taken}}},
                      {"samples", totals.samples},
                      {"rows_without_sample", totals.rows_without_sample},
                      {"tokens", totals.tokens},
                      {"supervised_tokens", totals.supervised_tokens},
                      {"mask", MaskFacts(totals.mask)},
                      {"chunks", totals.chunks},
                      {"batches", totals.batches},
                      {"shards", totals.shards},
                      {"published_shards", totals.published_shards},
                      {"published_bytes", totals.published_bytes},
                      {"discarded_shards", totals.discarded_shards},
                      {"quarantined_samples", totals.quarantined},
                      {"quarantine", std::move(failures)},
                      {"peak_chunk_bytes", input.peaks.chunk_bytes},
                      {"peak_states_bytes", input.peaks.states_bytes}};
}

std::string Share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "0 %" : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// The sums must add up; where they do not, the report says so instead of hiding it.
std::string CheckSums(const Totals& totals) {
  if (totals.rows != totals.kept + totals.duplicates + totals.rejected + totals.not_taken) {
    return "  WARNING: the rows of the sources do not add up; run `draftmill verify --deep`\n";
  }
  return "";
}

std::string Summary(const ReportInput& input, const Totals& totals) {
  std::string text;
  if (!input.did_work) {
    text += fmt::format("all is up to date in {}\n", input.work_folder);
  } else {
    text += fmt::format("done in {}: {}\n", FormatSeconds(input.seconds), input.work_folder);
  }
  text += fmt::format("  rows     {} read = {} kept + {} duplicates + {} refused + {} not taken\n",
                      FormatCount(totals.rows), FormatCount(totals.kept), FormatCount(totals.duplicates),
                      FormatCount(totals.rejected), FormatCount(totals.not_taken));
  text += fmt::format("  corpus   {} samples, {} tokens, {} of them supervised, in {} chunks; {} rows gave no sample\n",
                      FormatCount(totals.samples), FormatCount(totals.tokens),
                      Share(totals.supervised_tokens, totals.tokens), FormatCount(totals.tokenized_chunks),
                      FormatCount(totals.rows_without_sample));
  for (const std::string& line : MaskLines(totals.mask)) text += "  mask     " + line + "\n";
  if (totals.published_shards > 0) {
    text += fmt::format("  shards   {} of {}, {} samples, {}, from {} batches\n", FormatCount(totals.published_shards),
                        FormatCount(totals.shards), FormatCount(totals.published_samples),
                        FormatBytes(totals.published_bytes), FormatCount(totals.batches));
  }
  if (totals.discarded_shards > 0) text += "  WARNING: " + DiscardedShardsNote(totals.discarded_shards) + "\n";
  for (const FailureCount& failure : totals.failures) {
    text += fmt::format("  quarantine  {} x {} in {} (e.g. {})\n", FormatCount(failure.failures), failure.reason,
                        failure.stage, failure.example);
  }
  if (!totals.failures.empty()) {
    text += fmt::format("              `draftmill quarantine {} list` shows each with its file and line\n",
                        ShellWord(input.work_folder));
  }
  if (input.did_work) {
    text += fmt::format("  memory   at most {} of {} held by rows and tokens, {} of {} by states\n",
                        FormatBytes(input.peaks.chunk_bytes), FormatBytes(input.memory.chunk_credit_bytes),
                        FormatBytes(input.peaks.states_bytes), FormatBytes(input.memory.states_queue_bytes));
  }
  if (input.until_stage) text += fmt::format("  ended after {}, as asked for\n", *input.until_stage);
  return text + CheckSums(totals);
}

/// A disk may be full of files with space left.
bool LacksInodes(const std::string& folder) {
  struct statvfs disk {};
  return ::statvfs(folder.c_str(), &disk) == 0 && disk.f_files > 0 && disk.f_favail == 0;
}

/// What the user does next; empty where running again would end the same way.
std::string NextStep(const ReportInput& input, const Status& status) {
  if (ExitStatusAfterStart(status) != kExitRunAgain) return "";
  std::string text = "  ";
  if (status.code() == StatusCode::kDiskFull) {
    // shards/ may be a link to another disk.
    const std::string shards = JoinPath(input.work_folder, "shards");
    const std::string& folder = status.message().find(shards + "/") == std::string::npos ? input.work_folder : shards;
    text += LacksInodes(folder)
                ? fmt::format("the disk of {} takes no more files (its inodes are used up): remove some there, then ",
                              folder)
                : fmt::format("free space on the disk of {}, then ", folder);
  }
  return text + "run the same command again to continue";
}

std::string FailureText(const ReportInput& input, const Totals& totals) {
  return fmt::format(
      "draftmill: {}\n  kept: {} of {} chunks tokenized, {} of {} shards published, {} of {} batches written\n{}",
      input.status.message(), totals.tokenized_chunks, totals.chunks, totals.published_shards, totals.shards,
      totals.written_batches, totals.batches, NextStep(input, input.status));
}

}  // namespace

std::string ResumeLine(const std::string& run_name, const std::vector<ChunkRecord>& chunks, bool after_unclean_end) {
  const Totals totals = Sum({}, chunks);
  std::string line = fmt::format(
      "resuming {}: {} of {} chunks tokenized, {} of {} planned shards published, {} batches written", run_name,
      totals.tokenized_chunks, totals.chunks, totals.published_shards, totals.shards, totals.written_batches);
  if (after_unclean_end)
    line += "; the last run did not end cleanly, its database was recovered and agrees with itself";
  return line;
}

BadRowJudge MakeBadRowJudge(const std::vector<SourceRecord>& sources, const std::vector<ChunkRecord>& chunks,
                            double max_bad_fraction) {
  const Totals totals = Sum(sources, chunks);
  return {totals.rows, totals.rejected + totals.rows_without_sample, max_bad_fraction};
}

namespace {

/// The self-check of a finished run, or null.
json::Value SelfCheckOf(const ReportInput& input, FileSystem& files) {
  if (!input.status.ok() || !files.Exists(ManifestPath(input.work_folder))) return nullptr;
  const Result<Manifest> manifest = ReadManifest(files, input.work_folder);
  const json::Value* facts = manifest.ok() ? manifest->facts.Find(kSelfCheckFact) : nullptr;
  return facts == nullptr ? json::Value() : *facts;
}

std::string SelfCheckText(const json::Value& facts) {
  std::string text;
  const json::Value* agreement = facts.is_object() ? facts.Find("head_agreement") : nullptr;
  if (agreement != nullptr && agreement->is_object()) {
    text += fmt::format(
        "  check    the head agrees with the text at {} of {} positions as stored; one early {}, one late {}, without "
        "norm {}, normed twice {}\n",
        agreement->Find("as_stored")->as_integer(), agreement->Find("positions")->as_integer(),
        agreement->Find("one_early")->as_integer(), agreement->Find("one_late")->as_integer(),
        agreement->Find("without_norm")->as_integer(), agreement->Find("normed_twice")->as_integer());
  }
  if (!facts.is_object()) return text;
  for (const std::string& warning : SelfCheckWarnings(facts)) text += "  WARNING: " + warning + "\n";
  return text;
}

}  // namespace

RunReport MakeReport(const ReportInput& input, FileSystem& files) {
  RunReport report;
  report.exit_status = ExitStatusAfterStart(input.status);
  Result<Totals> totals = ReadTotals(input.work_folder, files);
  if (!totals.ok()) {
    const Status& shown = input.status.ok() ? totals.status() : input.status;
    report.exit_status = ExitStatusAfterStart(shown);
    report.summary = fmt::format("draftmill: {}\n{}", shown.message(), NextStep(input, shown));
    report.facts = json::Object{{"exit_status", report.exit_status}, {"error", shown.ToString()}};
    return report;
  }
  if (input.status.ok() && !totals->failures.empty()) report.exit_status = kExitQuarantined;
  report.facts = Facts(input, *totals, report.exit_status);
  json::Value self_check = SelfCheckOf(input, files);
  report.summary =
      input.status.ok() ? Summary(input, *totals) + SelfCheckText(self_check) : FailureText(input, *totals);
  report.facts.Set(kSelfCheckFact, std::move(self_check));
  return report;
}

}  // namespace draftmill

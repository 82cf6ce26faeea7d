#include "tools/command.h"

#include <stdio_ext.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "pipeline/reports/facts_text.h"
#include "stages/stage_spec.h"

namespace draftmill {

void AddTargetOptions(CLI::App& command, TargetOptions& options) {
  command.add_option("TARGET", options.target, "The pipeline file, or the work folder of a run")->required();
  command.add_option("--work", options.work, "The work folder, instead of the one that the pipeline file names")
      ->type_name("DIR")
      ->check([](const std::string& folder) { return folder.empty() ? std::string("must name a folder") : ""; });
  command.add_flag("--json", options.json, "Print JSON");
}

namespace {

/// The first failure of standard output. Commands print from one thread.
Status& FirstOutputFailure() {
  static Status failure = OkStatus();
  return failure;
}

void NoteOutputFailure() {
  if (FirstOutputFailure().ok()) FirstOutputFailure() = ErrnoStatus(errno, "writing to standard output");
}

}  // namespace

void PrintData(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) return NoteOutputFailure();
  if ((text.empty() || text.back() != '\n') && std::fputc('\n', stdout) == EOF) NoteOutputFailure();
}

const Status& OutputStatus() { return FirstOutputFailure(); }

const Status& FlushOutput() {
  errno = EIO;  // for an earlier failure, whose own is gone
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) NoteOutputFailure();
  return FirstOutputFailure();
}

void DropOutput() {
  ::__fpurge(stdout);
  std::clearerr(stdout);
  FirstOutputFailure() = OkStatus();
}

void OutliveReaders() { std::signal(SIGPIPE, SIG_IGN); }

void PrintJson(const json::Value& value) { PrintData(json::Write(value, json::Style::kPretty)); }

int PrintFacts(const Result<json::Value>& facts, bool as_json) {
  if (!facts.ok()) return ReportLookFailure(facts.status());
  if (as_json) {
    PrintJson(*facts);
  } else {
    PrintData(FactsAsText(*facts));
  }
  return kExitComplete;
}

int ReportFailure(const Status& status) {
  const std::string message = "draftmill: " + status.message() + "\n";
  std::fwrite(message.data(), 1, message.size(), stderr);
  return ExitStatusOf(status);
}

int ReportLookFailure(const Status& status) {
  static_cast<void>(ReportFailure(status));
  return ExitStatusOfLook(status);
}

bool IsAboutTheModel(const Status& status) {
  return status.code() == StatusCode::kInvalidInput || status.code() == StatusCode::kNotFound ||
         status.code() == StatusCode::kUnsupported;
}

int ReportModelFailure(const Status& status) {
  const int exit_status = ReportFailure(status);
  return IsAboutTheModel(status) ? kExitNotStarted : exit_status;
}

std::vector<std::string> StageNames() {
  std::vector<std::string> names;
  for (const StageSpec* stage : AllStages()) names.push_back(stage->name);
  return names;
}

bool StandardOutputShowsColours() {
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::string_view ProgramVersion() { return DRAFTMILL_VERSION; }

}  // namespace draftmill

#include "stages/vocab_map/vocab_import.h"

#include <string_view>
#include <utility>

#include "base/json.h"
#include "formats/npy.h"
#include "stages/vocab_map/vocab_map.h"

namespace draftmill {
namespace {

/// A map of a million places has 8 MiB.
constexpr std::int64_t kMaximumFileBytes = std::int64_t{64} << 20;
constexpr std::string_view kNothingStarted = ". Nothing was started";

Status Refuse(const std::string& path, const std::string& message) {
  return InvalidConfig("vocab_map.import: " + path + ": " + message + std::string(kNothingStarted));
}

/// `finding` as a fault of the file that the configuration names.
Status Refuse(const std::string& path, const Status& finding) {
  return finding.code() == StatusCode::kCorrupt ? Refuse(path, finding.message())
                                                : finding.WithContext("vocab_map.import");
}

std::string TextOf(const json::Value& report, std::string_view name) {
  const json::Value* value = report.Find(name);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

/// What report.json of the folder says, and that t2d.npy agrees.
Status ReadBinding(FileSystem& files, const std::string& folder, std::int64_t vocab_rows, ImportedVocab& imported) {
  const std::string path = JoinPath(folder, "report.json");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text,
                             files.ReadAll(path, kMaximumFileBytes).WithContext("vocab_map.import"));
  const Result<json::Value> report = json::Parse(text);
  if (!report.ok()) return Refuse(path, report.status().message());
  const json::Value* rows = report->Find("vocab_rows");
  if (rows == nullptr || !rows->is_integer()) return Refuse(path, "it does not say `vocab_rows`");
  if (rows->as_integer() != vocab_rows) {
    return Refuse(path, "made for a vocabulary of " + std::to_string(rows->as_integer()) + " rows; this model has " +
                            std::to_string(vocab_rows));
  }
  imported.corpus_digest = TextOf(*report, "corpus_digest");
  imported.mask_rule = TextOf(*report, "mask_rule");
  if (imported.corpus_digest.empty()) return Refuse(path, "it does not say `corpus_digest`");
  return OkStatus();
}

Status CheckTargets(FileSystem& files, const std::string& folder, const std::vector<std::uint8_t>& targets) {
  const std::string path = JoinPath(folder, "t2d.npy");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string file,
                             files.ReadAll(path, kMaximumFileBytes).WithContext("vocab_map.import"));
  const Result<std::vector<std::uint8_t>> t2d = ReadNpyBool(file, path);
  if (!t2d.ok()) return Refuse(path, t2d.status());
  return *t2d == targets ? OkStatus() : Refuse(path, "it contradicts d2t.npy");
}

}  // namespace

Result<ImportedVocab> ReadVocabImport(FileSystem& files, const std::string& path, std::int64_t size,
                                      std::int64_t vocab_rows) {
  DRAFTMILL_ASSIGN_OR_RETURN(const FileInfo info, files.Stat(path).WithContext("vocab_map.import"));
  ImportedVocab imported;
  imported.path = path;
  const std::string d2t_path = info.is_folder ? JoinPath(path, "d2t.npy") : path;
  if (info.is_folder) DRAFTMILL_RETURN_IF_ERROR(ReadBinding(files, path, vocab_rows, imported));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string file,
                             files.ReadAll(d2t_path, kMaximumFileBytes).WithContext("vocab_map.import"));
  Result<std::vector<std::int64_t>> d2t = ReadNpyInt64(file, d2t_path);
  if (!d2t.ok()) return Refuse(d2t_path, d2t.status());
  const auto places = static_cast<std::int64_t>(d2t->size());
  if (places != size) {
    return Refuse(d2t_path, "it has " + std::to_string(places) + " places, and vocab_map.size says " +
                                std::to_string(size) + "; set it to " + std::to_string(places));
  }
  if (size >= vocab_rows) {
    return Refuse(d2t_path, "a size of the whole vocabulary (" + std::to_string(vocab_rows) + " rows) needs no map");
  }
  const Result<std::vector<std::uint8_t>> targets = TargetsOf(*d2t, vocab_rows);
  if (!targets.ok()) return Refuse(d2t_path, targets.status());
  if (info.is_folder) DRAFTMILL_RETURN_IF_ERROR(CheckTargets(files, path, *targets));
  imported.content = HashBytes128(file);
  imported.d2t = std::move(d2t).value();
  return imported;
}

Status CheckBinding(const ImportedVocab& imported, const std::string& mask_rule, const std::string& corpus_digest) {
  static constexpr std::string_view kWhatToDo =
      ". Nothing published was lost. Name the d2t.npy in it instead of the folder to use it nevertheless, or take "
      "vocab_map.import out, so that a map is made";
  const auto refuse = [&imported](std::string_view what) {
    return InvalidConfig("vocab_map.import: " + imported.path + " was made " + std::string(what) +
                         std::string(kWhatToDo));
  };
  if (!imported.mask_rule.empty() && imported.mask_rule != mask_rule) {
    return refuse("with another tokenizer, template or mask rule (other parameters of tokenize)");
  }
  if (!imported.corpus_digest.empty() && !corpus_digest.empty() && imported.corpus_digest != corpus_digest) {
    return refuse("for another corpus");
  }
  return OkStatus();
}

}  // namespace draftmill

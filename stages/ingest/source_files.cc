#include "stages/ingest/source_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

namespace draftmill {
namespace {

constexpr int kMaxFolderDepth = 16;
constexpr std::size_t kMaxFiles = 1'000'000;

bool TakeSuffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

/// The layout that a name stands for, if it is that of a data file.
std::optional<FileLayout> LayoutOfName(std::string_view name) {
  if (!TakeSuffix(name, ".gz")) TakeSuffix(name, ".zst");
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return FileLayout::kLines;
  if (name.ends_with(".json")) return FileLayout::kValues;
  return std::nullopt;
}

bool HasGlobCharacter(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

/// Collects the files of one entry.
class Finder {
 public:
  Finder(FileSystem& file_system, std::size_t spec, std::vector<SourceFile>& files)
      : file_system_(file_system), spec_(spec), files_(files) {}

  Status Find(const std::string& path) {
    const std::size_t before = files_.size();
    Result<FileInfo> info = file_system_.Stat(path);
    if (info.ok()) {
      DRAFTMILL_RETURN_IF_ERROR(info->is_folder ? AddFolder(path, 0) : AddNamedFile(path, *info));
    } else if (HasGlobCharacter(path)) {
      DRAFTMILL_RETURN_IF_ERROR(AddGlob(path));
    } else {
      return Missing(path, info.status()).WithContext("ingest.sources[" + std::to_string(spec_) + "]");
    }
    if (files_.size() == before) {
      return NotFound("ingest.sources[" + std::to_string(spec_) +
                      "]: no .json, .jsonl or .ndjson file (also .gz, .zst) at " + path);
    }
    std::sort(files_.begin() + static_cast<std::ptrdiff_t>(before), files_.end(),
              [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    return OkStatus();
  }

 private:
  static Status Missing(const std::string& path, const Status& status) {
    if (status.code() != StatusCode::kNotFound) return status;
    return NotFound("there is no file or folder " + path +
                    ". Correct the path, which is relative to the pipeline file, or put the data there");
  }

  Status AddNamedFile(const std::string& path, FileInfo info) {
    DRAFTMILL_ASSIGN_OR_RETURN(const FileLayout layout, LayoutOfFile(path));
    files_.push_back({.path = path, .spec = spec_, .layout = layout, .info = std::move(info)});
    if (files_.size() > kMaxFiles) return Unsupported("more than " + std::to_string(kMaxFiles) + " source files");
    return OkStatus();
  }

  Status AddFolder(const std::string& folder, int depth) {
    if (depth > kMaxFolderDepth)
      return Unsupported(folder + ": folders nested more than " + std::to_string(kMaxFolderDepth) + " deep");
    DRAFTMILL_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, file_system_.List(folder));
    const bool is_work_folder = IsWorkFolder(folder);
    for (FileInfo& entry : entries) {
      if (entry.name.starts_with('.') || (is_work_folder && IsMadeByARun(entry.name))) continue;
      const std::string path = JoinPath(folder, entry.name);
      if (entry.is_folder) {
        if (!IsWorkFolder(path)) DRAFTMILL_RETURN_IF_ERROR(AddFolder(path, depth + 1));
      } else if (LayoutOfName(path) || path.ends_with(".parquet")) {
        DRAFTMILL_RETURN_IF_ERROR(AddNamedFile(path, std::move(entry)));
      }
    }
    return OkStatus();
  }

  /// Of this run or another one: what a run makes of rows would come back as further rows each time.
  bool IsWorkFolder(const std::string& folder) const {
    constexpr std::string_view kOfARun[] = {"state.db", "run.json", "run.lock"};
    return std::any_of(std::begin(kOfARun), std::end(kOfARun),
                       [&](std::string_view name) { return file_system_.Exists(JoinPath(folder, std::string(name))); });
  }

  /// What of a work folder is the run's. Rows may lie beside it: people put data, pipeline file and run into one folder.
  static bool IsMadeByARun(std::string_view name) {
    constexpr std::string_view kNames[] = {"corpus", "exports", "generated",     "ingested", "logs",
                                           "shards", "vocab",   "manifest.json", "run.json"};
    return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
  }

  Status AddGlob(const std::string& pattern) {
    if (pattern.find("**") != std::string::npos) {
      return Unsupported(pattern + ": ** is not understood; name a folder to read all that is below it");
    }
    const std::size_t first = pattern.find_first_of("*?[");
    const std::size_t slash = pattern.rfind('/', first);
    const std::string base = slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
    return Match(base, pattern.substr(base.size()));
  }

  /// Goes one component of the pattern deeper. `base` is empty or ends with '/'.
  Status Match(const std::string& base, const std::string& pattern) {
    const std::size_t slash = pattern.find('/');
    const std::string component = pattern.substr(0, slash);
    const std::string rest = slash == std::string::npos ? "" : pattern.substr(slash + 1);
    const std::string folder = base.empty() ? "." : base;
    DRAFTMILL_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, file_system_.List(folder));
    const bool is_work_folder = IsWorkFolder(folder);
    for (FileInfo& entry : entries) {
      if (::fnmatch(component.c_str(), entry.name.c_str(), FNM_PERIOD) != 0) continue;
      if (is_work_folder && IsMadeByARun(entry.name)) continue;
      const std::string path = base + entry.name;
      if (!rest.empty()) {
        if (entry.is_folder) DRAFTMILL_RETURN_IF_ERROR(Match(path + "/", rest));
      } else if (entry.is_folder) {
        if (!IsWorkFolder(path)) DRAFTMILL_RETURN_IF_ERROR(AddFolder(path, 0));
      } else {
        DRAFTMILL_RETURN_IF_ERROR(AddNamedFile(path, std::move(entry)));
      }
    }
    return OkStatus();
  }

  FileSystem& file_system_;
  std::size_t spec_;
  std::vector<SourceFile>& files_;
};

}  // namespace

Result<FileLayout> LayoutOfFile(const std::string& path) {
  if (path.ends_with(".parquet")) {
    return Unsupported(path + ": Parquet is not read. Convert it: tools/parquet_to_jsonl.py " + path +
                       " (writes .jsonl.zst)");
  }
  const std::optional<FileLayout> layout = LayoutOfName(path);
  if (layout) return *layout;
  return Unsupported(path + ": a source must be named .json, .jsonl or .ndjson, perhaps with .gz or .zst after it");
}

Result<std::vector<SourceFile>> FindSourceFiles(const std::vector<SourceSpec>& specs, FileSystem& file_system) {
  std::vector<SourceFile> files;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    DRAFTMILL_RETURN_IF_ERROR(Finder(file_system, i, files).Find(specs[i].path));
  }
  return files;
}

std::string RelativeName(const std::string& path, const std::string& base_folder) {
  if (base_folder.empty()) return path;
  namespace fs = std::filesystem;
  std::error_code ignored;  // a path that cannot be made absolute stays as it is written
  const fs::path absolute = fs::absolute(path, ignored).lexically_normal();
  const fs::path base = fs::absolute(base_folder, ignored).lexically_normal();
  return absolute.lexically_proximate(base).generic_string();
}

}  // namespace draftmill

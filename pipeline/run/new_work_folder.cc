#include "pipeline/run/new_work_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "state/state_reader.h"

namespace draftmill {
namespace {

/// What a run writes into its work folder; of the folders, what stands in them.
constexpr std::array<std::string_view, 7> kNamesOfARun = {
    "pipeline.yaml", "manifest.json", "final_norm.safetensors", "ingested", "corpus", "vocab", "shards"};

/// Links to other disks and mount points are made before the first start, so an empty folder is in nobody's way.
Result<bool> IsInTheWay(FileSystem& files, const Config& config, const FileInfo& entry) {
  const std::string path = JoinPath(config.work_folder(), entry.name);
  if (!entry.is_folder) {
    if (entry.name != kPipelineCopyName) return true;
    // The file that the run was given, or a copy that a run left which was killed at once.
    const Result<std::string> text = files.ReadAll(path);
    return !text.ok() || *text != config.text();
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> inside, files.List(path));
  return std::any_of(inside.begin(), inside.end(),
                     [](const FileInfo& file) { return !file.name.starts_with('.') && file.name != "lost+found"; });
}

/// Whether a run has begun in the folder: it has its database, or the facts from which that can be made again.
bool BelongsToARun(FileSystem& files, const std::string& work_folder) {
  const Result<StateReader> state = StateReader::Open(work_folder, files);
  const bool has_state = state.ok() || state.status().code() != StatusCode::kNotFound;
  return has_state || files.Exists(JoinPath(work_folder, kRunFactsName));
}

}  // namespace

Status CheckThatWorkFolderMayBeUsed(FileSystem& files, const Config& config) {
  const std::string& work = config.work_folder();
  const Result<FileInfo> info = files.Stat(work);
  if (!info.ok()) return info.status().code() == StatusCode::kNotFound ? OkStatus() : info.status();
  if (!info->is_folder) {
    return InvalidConfig("the work folder " + work + " is a file. Name a folder: `work`, or --work DIR");
  }
  std::error_code ignored;  // of paths that are not there nothing is the same
  if (std::filesystem::equivalent(work, config.section("model").Text("path"), ignored)) {
    return InvalidConfig("the work folder " + work +
                         " is the model's folder, which is only read. Name another: `work`, or --work DIR");
  }
  if (BelongsToARun(files, work)) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.List(work));
  std::string names;
  for (const FileInfo& entry : entries) {
    if (std::find(kNamesOfARun.begin(), kNamesOfARun.end(), entry.name) == kNamesOfARun.end()) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const bool is_in_the_way, IsInTheWay(files, config, entry));
    if (is_in_the_way) names += (names.empty() ? "" : ", ") + entry.name;
  }
  if (names.empty()) return OkStatus();
  return Conflict("the folder " + work + " belongs to no run, but holds " + names +
                  ", and a run would replace what it finds under names of its own. Nothing was touched. Name another "
                  "folder (`work`, or --work DIR), or move these away");
}

}  // namespace draftmill

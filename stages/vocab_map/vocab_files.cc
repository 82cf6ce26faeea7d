#include "stages/vocab_map/vocab_files.h"

#include <memory>
#include <string_view>
#include <utility>

#include "formats/npy.h"

namespace draftmill {
namespace {

constexpr std::string_view kFolder = "vocab";

// Content by file name, in the order of the names.
std::vector<std::pair<std::string, std::string>> FilesOf(const VocabMap& map) {
  std::vector<std::pair<std::string, std::string>> files;
  if (map.exists) files.emplace_back("d2t.npy", NpyOfInt64(map.d2t));
  files.emplace_back("report.json", json::Write(map.report, json::Style::kPretty) + "\n");
  if (map.exists) files.emplace_back("t2d.npy", NpyOfBool(map.t2d));
  files.emplace_back("token_freq.npy", NpyOfInt64(map.token_freq));
  return files;
}

Status WriteSynced(FileSystem& file_system, const std::string& path, const std::string& content) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                             file_system.OpenForWriting(path, OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(content))));
  DRAFTMILL_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

// The three names of the folder.
struct VocabFolders {
  explicit VocabFolders(const std::string& work)
      : work_folder(work), current(JoinPath(work, kFolder)), partial(current + ".partial"), old(current + ".old") {}
  std::string work_folder;
  std::string current;
  std::string partial;
  std::string old;
};

Status Exchange(FileSystem& file_system, const VocabFolders& folders) {
  if (file_system.Exists(folders.current)) {
    DRAFTMILL_RETURN_IF_ERROR(file_system.Rename(folders.current, folders.old));
  }
  DRAFTMILL_RETURN_IF_ERROR(file_system.Rename(folders.partial, folders.current));
  DRAFTMILL_RETURN_IF_ERROR(file_system.SyncFolder(folders.work_folder));
  DRAFTMILL_RETURN_IF_ERROR(file_system.RemoveTree(folders.old));
  return file_system.SyncFolder(folders.work_folder);
}

Result<std::string> ReadOne(FileSystem& file_system, const VocabFolders& folders, std::string_view name) {
  return file_system.ReadAll(JoinPath(folders.current, name));
}

// That t2d, d2t and token_freq are of one vocabulary and say the same.
Status CheckMap(const VocabMap& map) {
  if (map.t2d.size() != map.token_freq.size()) return Corrupt("t2d.npy and token_freq.npy differ in length");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> expected,
                             TargetsOf(map.d2t, static_cast<std::int64_t>(map.t2d.size())).WithContext("d2t.npy"));
  return expected == map.t2d ? OkStatus() : Corrupt("t2d.npy and d2t.npy contradict each other");
}

}  // namespace

Result<std::vector<PublishedFile>> WriteVocab(FileSystem& file_system, const std::string& work_folder,
                                              const VocabMap& map) {
  const VocabFolders folders(work_folder);
  DRAFTMILL_RETURN_IF_ERROR(RecoverVocab(file_system, work_folder));
  DRAFTMILL_RETURN_IF_ERROR(file_system.MakeFolder(folders.partial));
  std::vector<PublishedFile> published;
  for (const auto& [name, content] : FilesOf(map)) {
    DRAFTMILL_RETURN_IF_ERROR(WriteSynced(file_system, JoinPath(folders.partial, name), content));
    published.push_back({.path = JoinPath(kFolder, name),
                         .bytes = static_cast<std::int64_t>(content.size()),
                         .digest = HashBytes128(content)});
  }
  DRAFTMILL_RETURN_IF_ERROR(file_system.SyncFolder(folders.partial));
  DRAFTMILL_RETURN_IF_ERROR(file_system.SyncFolder(folders.work_folder));
  DRAFTMILL_RETURN_IF_ERROR(Exchange(file_system, folders));
  return published;
}

Status RecoverVocab(FileSystem& file_system, const std::string& work_folder) {
  const VocabFolders folders(work_folder);
  const bool has_partial = file_system.Exists(folders.partial);
  const bool has_old = file_system.Exists(folders.old);
  if (!has_partial && !has_old) return OkStatus();
  if (!file_system.Exists(folders.current) && has_old) {
    // Only a complete and synced new folder ever takes the old one's place.
    DRAFTMILL_RETURN_IF_ERROR(file_system.Rename(has_partial ? folders.partial : folders.old, folders.current));
    DRAFTMILL_RETURN_IF_ERROR(file_system.SyncFolder(work_folder));
  }
  DRAFTMILL_RETURN_IF_ERROR(file_system.RemoveTree(folders.partial));
  DRAFTMILL_RETURN_IF_ERROR(file_system.RemoveTree(folders.old));
  return file_system.SyncFolder(work_folder);
}

Result<VocabMap> ReadVocab(FileSystem& file_system, const std::string& work_folder) {
  const VocabFolders folders(work_folder);
  VocabMap map;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string report, ReadOne(file_system, folders, "report.json"));
  Result<json::Value> parsed = json::Parse(report);
  if (!parsed.ok()) return Corrupt(folders.current + "/report.json: " + parsed.status().message());
  map.report = *std::move(parsed);
  const json::Value* exists = map.report.Find("map");
  if (exists == nullptr || !exists->is_bool()) return Corrupt(folders.current + "/report.json: it lacks 'map'");
  map.exists = exists->as_bool();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string frequencies, ReadOne(file_system, folders, "token_freq.npy"));
  DRAFTMILL_ASSIGN_OR_RETURN(map.token_freq, ReadNpyInt64(frequencies, folders.current + "/token_freq.npy"));
  if (!map.exists) return map;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string d2t, ReadOne(file_system, folders, "d2t.npy"));
  DRAFTMILL_ASSIGN_OR_RETURN(map.d2t, ReadNpyInt64(d2t, folders.current + "/d2t.npy"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string t2d, ReadOne(file_system, folders, "t2d.npy"));
  DRAFTMILL_ASSIGN_OR_RETURN(map.t2d, ReadNpyBool(t2d, folders.current + "/t2d.npy"));
  DRAFTMILL_RETURN_IF_ERROR(CheckMap(map).WithContext(folders.current));
  return map;
}

}  // namespace draftmill

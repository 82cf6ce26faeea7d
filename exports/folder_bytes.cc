#include "exports/folder_bytes.h"

#include <vector>

namespace draftmill {

Result<std::int64_t> BytesOfFolder(FileSystem& files, const std::string& folder, const std::set<std::string>& skipped) {
  std::int64_t bytes = 0;
  std::vector<std::string> folders = {folder};
  while (!folders.empty()) {
    const std::string current = folders.back();
    folders.pop_back();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.List(current));
    for (const FileInfo& entry : entries) {
      if (current == folder && skipped.contains(entry.name)) continue;
      if (entry.is_folder) folders.push_back(JoinPath(current, entry.name));
      if (!entry.is_folder) bytes += entry.size_bytes;
    }
  }
  return bytes;
}

}  // namespace draftmill

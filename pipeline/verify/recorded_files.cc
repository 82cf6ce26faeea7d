#include "pipeline/verify/recorded_files.h"

#include <utility>

#include "formats/published_file.h"

namespace draftmill {

Status RecordFile(FileSystem& files, const std::string& work_folder, const std::string& path, StateWriter& state) {
  std::string name(kFactDigestPrefix);
  name += path;
  const Result<PublishedFile> file = DigestFile(files, work_folder, path);
  if (!file.ok() && file.status().code() != StatusCode::kNotFound) return file.status();
  state.SetFact(std::move(name), file.ok() ? ToHex(file->digest) : "");
  return OkStatus();
}

}  // namespace draftmill

// How far a `verify --deep` came that was interrupted, so that the next one goes on there: reading some terabytes takes hours.
//
//   VerifyProgress progress(files, clock, work_folder);
//   options.first_deep_chunk = progress.first_chunk();
//   options.on_chunk = [&](std::int64_t next, const VerifyReport& so_far) { progress.Note(next, so_far); };
//   ... VerifyWork ...; progress.Finish() where it came to its end
//
// Kept in `verify.json` of the work folder, for as long as state.db stays as it is: any run makes a check begin anew. A
// chunk with a fault is read again, so that its faults need not be kept. Losing the file costs time and nothing else, so
// failures to write it are not reported. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "pipeline/verify/verify.h"
#include "state/file_system.h"

namespace draftmill {

class VerifyProgress {
 public:
  VerifyProgress(FileSystem& files, Clock& clock, const std::string& work_folder);

  /// The first chunk that was not read yet, or that has a fault; 0 where nothing is known.
  std::int64_t first_chunk() const { return first_chunk_; }
  /// Takes down that the chunks before `next` were read; written to the disk every few seconds.
  void Note(std::int64_t next, const VerifyReport& so_far);
  /// Writes what Note was told last.
  void Keep();
  /// All was read: the next check begins anew.
  void Finish();

 private:
  FileSystem& files_;
  Clock& clock_;
  const std::string path_;
  const std::string state_;  ///< stands for the database as it is now
  std::int64_t first_chunk_ = 0;
  std::int64_t next_ = 0;
  std::int64_t kept_ns_ = 0;
};

}  // namespace draftmill

// The folder vocab/ of a work folder: written beside the old one and exchanged as one, so that a reader never sees
// files of two maps (docs/formats.md, "Vocabulary map").
//
// The new folder is written as `vocab.partial` and synced, then the old one becomes `vocab.old` and the new one
// `vocab`. Between these two renames there is no `vocab`, but then there is a `vocab.old`, which exists at no other
// time without a `vocab`: RecoverVocab finishes what a kill or a power cut interrupted. Call it before the folder is
// looked at.
//
// Errors: kIo, kDiskFull; kCorrupt from reading. One thread at a time.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/published_file.h"
#include "stages/vocab_map/vocab_map.h"
#include "state/file_system.h"

namespace draftmill {

/// All that may lie in the folder, by their paths in the work folder. A folder without a map lacks two of them.
inline constexpr std::array<const char*, 4> kVocabFiles = {"vocab/d2t.npy", "vocab/report.json", "vocab/t2d.npy",
                                                           "vocab/token_freq.npy"};

/// Publishes d2t.npy, t2d.npy (where there is a map), token_freq.npy and report.json. Returns them in the order of
/// their names, with paths relative to the work folder.
Result<std::vector<PublishedFile>> WriteVocab(FileSystem& file_system, const std::string& work_folder,
                                              const VocabMap& map);

/// Completes an interrupted exchange and removes what a write left behind. Success where there is nothing to do.
Status RecoverVocab(FileSystem& file_system, const std::string& work_folder);

/// Reads the folder back and checks that its files fit each other.
Result<VocabMap> ReadVocab(FileSystem& file_system, const std::string& work_folder);

}  // namespace draftmill

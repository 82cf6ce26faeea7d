// Which files the sources of a configuration stand for: a file, a folder or a glob, in an order that depends on names
// alone. Nothing is opened here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "stages/ingest/conversation.h"
#include "stages/ingest/row_reader.h"
#include "state/file_system.h"

namespace draftmill {

/// One entry of `ingest.sources`.
struct SourceSpec {
  std::string path;  ///< a file, a folder, or a glob with * ? [ ]
  RowForm form = RowForm::kAuto;
  std::optional<std::int64_t> take_rows;  ///< the first so many good rows
  std::optional<double> take_fraction;    ///< this share of the good rows, chosen by their content
};

/// One file to be read.
struct SourceFile {
  std::string path;
  std::size_t spec = 0;  ///< index of its entry in `ingest.sources`
  FileLayout layout = FileLayout::kLines;
  FileInfo info;
  std::int32_t epoch = 0;  ///< IngestOptions::files
  /// XXH3-128 of its bytes where they were taken before: ingest ends with kConflict where it reads others.
  std::optional<Hash128> content = {};
};

/// How the rows of a file lie in it, as its name tells. Parquet, and a name that tells nothing, are refused.
Result<FileLayout> LayoutOfFile(const std::string& path);

/// All files in the order in which they are read: entries in their order, the files of an entry by the bytes of their
/// paths. A folder stands for all data files in it and below; other files in it, and work folders below it, are passed over,
/// Parquet is refused.
Result<std::vector<SourceFile>> FindSourceFiles(const std::vector<SourceSpec>& specs, FileSystem& file_system);

/// The path as it stands relative to `base_folder`; as it is where that is empty.
std::string RelativeName(const std::string& path, const std::string& base_folder);

}  // namespace draftmill

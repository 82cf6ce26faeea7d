// corpus/chunk-000012.safetensors: the tokenized samples of one chunk (docs/formats.md, "Corpus chunk").
//
//   DRAFTMILL_ASSIGN_OR_RETURN(PublishedFile file, WriteCorpusChunk(file_system, work_folder, chunk, fingerprint));
//   DRAFTMILL_ASSIGN_OR_RETURN(CorpusChunk corpus, ReadCorpusChunk(file_system, work_folder, 12));
//
// The file is a function of the chunk and the fingerprint alone. Source, turn and failures of a TokenizedChunk stand in
// the state database, not here. Errors: kCorrupt (with the file and what is wrong in it), kNotFound, kIo, kDiskFull.
// Functions are safe from any thread; one chunk is written by one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "formats/published_file.h"
#include "formats/records.h"
#include "state/file_system.h"

namespace draftmill {

/// "corpus/chunk-000012.safetensors"
std::string CorpusChunkPath(std::int32_t chunk);

/// A chunk as it was read: source, turn and failures are empty.
struct CorpusChunk {
  TokenizedChunk chunk;
  std::string fingerprint;  ///< of the tokenize stage when the file was written
};

/// Publishes the file atomically; makes the folder `corpus` where it is missing. The digest is that of all bytes.
Result<PublishedFile> WriteCorpusChunk(FileSystem& file_system, const std::string& work_folder,
                                       const TokenizedChunk& chunk, const std::string& fingerprint);

/// Reads a chunk and checks all that can be checked from the file alone: its form, the order of the samples, mask
/// values, and each sample's token hash.
Result<CorpusChunk> ReadCorpusChunk(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk);

/// What the header of a chunk's file says.
struct CorpusChunkSizes {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
};

/// Reads the header alone: a file of this kind and chunk, and how much it holds.
Result<CorpusChunkSizes> ReadCorpusChunkSizes(FileSystem& file_system, const std::string& work_folder,
                                              std::int32_t chunk);

/// What a TokenizedChunk promises (formats/records.h) about lengths, order, mask and hashes; kCorrupt names the sample.
Status CheckTokenizedChunk(const TokenizedChunk& chunk);

}  // namespace draftmill

// The files of a work folder that describe the run as a whole: pipeline.yaml, run.json and manifest.json.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/manifest.h"
#include "pipeline/config/config.h"
#include "pipeline/run/run_inputs.h"
#include "state/file_system.h"
#include "state/fingerprint.h"
#include "state/store.h"

namespace draftmill {

/// Writes pipeline.yaml (the configuration's bytes) and run.json (resolved parameters, epochs, parts of the
/// fingerprints), where they are not there with these bytes already. Done before the first product.
Status WriteRunFiles(FileSystem& files, const Config& config, const RunInputs& inputs,
                     const std::map<std::string, Fingerprint>& fingerprints);

/// Fails with kCorrupt, naming the first, where files that the database knows are missing or have another size. Reads no
/// content. Success where there is no database yet.
Status CheckThatFilesStand(FileSystem& files, const std::string& work_folder);

/// How many files of ingested/ that the database knows are not there. Nothing that is published needs them, but only they, or
/// the sources, can tell what a sample was made from. Looks at names alone.
Result<std::int64_t> CountMissingIngestedFiles(FileSystem& files, const std::string& work_folder);

/// Removes corpus files and shards of chunks from `chunks` on: an ingest that gave fewer left them.
Status RemoveOrphans(FileSystem& files, const std::string& work_folder, std::int64_t chunks);

/// Removes files of shards that are recorded as discarded: the run that recorded them ended before it had deleted them.
Status RemoveDiscarded(FileSystem& files, const std::string& work_folder);

/// The rule that made the loss masks, by the parameters that shape it: a fact of each shard.
std::string MaskRule(const Config& config);

/// What the finished run consists of, from the database and the folder vocab/.
Result<Manifest> MakeManifest(FileSystem& files, const std::string& work_folder, const Config& config,
                              const RunInputs& inputs, const std::map<std::string, Fingerprint>& fingerprints);

/// All batches that lie in shards not yet published are to be computed again.
Status RedoOpenShards(StateWriter& state, const std::string& work_folder, FileSystem& files,
                      const std::vector<ChunkRecord>& chunks);

}  // namespace draftmill

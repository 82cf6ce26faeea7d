#include "stages/stage_spec.h"

namespace draftmill {

const StageSpec& WriteSpec() {
  static const StageSpec spec{
      .name = "write",
      .version = 1,
      .doc =
          "Writes the hidden states into shard files, each batch in its place as it comes, with checksums and atomic "
          "publication. It has no work of its own that could be repeated: `rerun write` means `rerun extract`, since "
          "states exist only in shards.",
      .inputs = {"tokenize", "extract"},
      .output = "shards/",
      .parameters = {
          {.name = "shard_bytes",
           .type = ParameterType::kBytes,
           .doc = "Size of the hidden states at which a shard file is cut. A shard holds at least one batch "
                  "and batches of one chunk only, so many files are smaller. It is a part of the plan: a "
                  "changed value applies to chunks of which nothing is published.",
           .default_yaml = "1GiB",
           .minimum = 1.0,
           .maximum = 1024.0 * 1024 * 1024 * 1024},
          {.name = "discard_after_publish",
           .type = ParameterType::kBool,
           .doc = "For benchmarks alone: `true` deletes each shard once it is published and recorded, so that a "
                  "long run needs no large disk. What is left is no data set: every command says so, `export` "
                  "refuses it, and nothing of it can be verified but what is there. Back at `false`, a run "
                  "with `--accept-changes` computes the deleted states again.",
           .default_yaml = "false"}}};
  return spec;
}

}  // namespace draftmill

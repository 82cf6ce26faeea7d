#include "stages/stage_spec.h"

namespace draftmill {

const StageSpec& ExtractSpec() {
  static const StageSpec spec{
      .name = "extract",
      .version = 5,
      .doc =
          "Runs the target model over every sample, prefill only, and keeps a few layers' hidden states of each token. "
          "States are unshifted and in the published model's precision; x_k is the residual stream that enters layer "
          "k, "
          "x_n the output of the last layer before the final norm.",
      .inputs = {"tokenize", "model.config", "model.weights"},
      .output = "shards/",
      .parameters = {
          {.name = "device",
           .type = ParameterType::kChoice,
           .doc =
               "Where the model runs. `cuda` takes every GPU that the process may use (CUDA_VISIBLE_DEVICES) and is "
               "refused, "
               "with the reason, where there is none or the GPU engine does not run the model (docs/models.md); `auto` "
               "takes GPUs where that is possible, else the CPU.",
           .default_yaml = "auto",
           .choices = {"auto", "cpu", "cuda"},
           .in_fingerprint = false},
          {.name = "weights",
           .type = ParameterType::kChoice,
           .doc = "Where the weights live: `resident` loads them once; `streamed` brings each layer for each block, "
                  "from disk, or "
                  "for GPUs from the host's memory where limits.memory has room for them; `sharded` keeps a part of "
                  "each layer "
                  "on each GPU. `auto` decides at each start, from what is free, and says why. The states do not "
                  "depend on it.",
           .default_yaml = "auto",
           .choices = {"auto", "resident", "sharded", "streamed"},
           .in_fingerprint = false},
          {.name = "occupied",
           .type = ParameterType::kChoice,
           .doc = "What a run does where other processes compute on its GPUs: `fail` names them, with their memory, "
                  "and starts "
                  "nothing; `wait` names them and waits until they are gone.",
           .default_yaml = "fail",
           .choices = {"fail", "wait"},
           .in_fingerprint = false},
          {.name = "layers",
           .type = ParameterType::kIntegerList,
           .doc =
               "Which x_k are stored, ascending. `eagle3` means 2, n/2, n-3 and n for a model of n layers; models of "
               "fewer than 7 layers have no such default.",
           .default_yaml = "eagle3",
           .words = {"eagle3"},
           .minimum = 0.0},
          {.name = "batch_tokens",
           .type = ParameterType::kInteger,
           .doc =
               "Token budget of a batch: samples packed back to back, computed and written together. A longer sample "
               "goes alone. `auto` is resolved once, at the first start, and stored with the run.",
           .default_yaml = "auto",
           .words = {"auto"},
           .minimum = 1.0,
           .maximum = 1048576.0},
          {.name = "block_tokens",
           .type = ParameterType::kInteger,
           .doc =
               "Token budget of a block: batches that go through the model together, layer by layer. A crash costs at "
               "most one block; a larger one needs more memory and reads streamed weights less often. `auto` is "
               "resolved once, from limits.memory, and stored with the run.",
           .default_yaml = "auto",
           .words = {"auto"},
           .minimum = 1.0,
           .maximum = 16777216.0},
          {.name = "numerics",
           .type = ParameterType::kChoice,
           .doc = "`hf` rounds inside the layers where the published transformers model rounds. `fused` rounds once in "
                  "norms, as serving engines do. With both, the CPU keeps the residual stream in float32.",
           .default_yaml = "hf",
           .choices = {"hf", "fused"}}}};
  return spec;
}

}  // namespace draftmill

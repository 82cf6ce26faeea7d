#include "stages/stage_spec.h"

namespace draftmill {

const StageSpec& VocabMapSpec() {
  static const StageSpec spec{
      .name = "vocab_map",
      .version = 1,
      .doc =
          "Counts the supervised tokens of the corpus and chooses those that get a place in the drafter's vocabulary. "
          "Forced in are the stop tokens, added tokens that are supervised at least once, and `forced_tokens`; then "
          "the most frequent ones. Reads the corpus alone: changing it never computes states again.",
      .inputs = {"tokenize", "model.config", "model.tokenizer"},
      .output = "vocab/",
      .parameters = {
          {.name = "size",
           .type = ParameterType::kInteger,
           .doc = "Number of tokens in the drafter's vocabulary. At the target's own size or above there is "
                  "no map: the drafter has all of its tokens.",
           .default_yaml = "32000",
           .minimum = 1.0,
           .maximum = 1048576.0},
          {.name = "forced_tokens",
           .type = ParameterType::kTextList,
           .doc = "Tokens that get a place even if the corpus never supervises them, by their exact content, "
                  "e.g. `[\"<tool_call>\"]`. One that the tokenizer does not have is an error.",
           .default_yaml = "[]"},
          {.name = "import",
           .type = ParameterType::kPath,
           .doc = "A map that is taken as it is instead of being made: a `d2t.npy` (int64, `size` offsets, target ids "
                  "ascending), e.g. of a drafter that is to be trained further, or a `vocab/` folder of draftmill, "
                  "which must have been made from the same corpus under the same vocabulary and mask rule. The report "
                  "then says what it covers of this corpus.",
           .default_yaml = "none",
           .words = {"none"},
           // The bytes of the map are an input of the stage; where it lies does not matter.
           .in_fingerprint = false}}};
  return spec;
}

}  // namespace draftmill

// One expert's matrices as products take them: where they stand, or expanded from the checkpoint's packed form.
//
//   std::vector<Bf16> scratch(ExpertScratchElements(*view.layout));
//   const ExpertView<Bf16> expert = ExpertOf(view, 17, scratch.data());     // valid while the view is held
//
// Expansion is exact to the bit: the value that the format defines, rounded once to bfloat16 (as the formats' own
// packages do), widened where W is float. Safe from any thread, each with its own scratch.
#pragma once

#include <cstdint>

#include "stages/extract/weights/weight_store.h"

namespace draftmill {

template <typename W>
struct ExpertView {
  const W* gate_up = nullptr;  ///< [2 * expert_intermediate, hidden], gate first
  const W* down = nullptr;     ///< [hidden, expert_intermediate]
};

/// Elements of scratch that ExpertOf needs: 0 where the layer's experts are not packed.
std::int64_t ExpertScratchElements(const LayerLayout& layout);

template <typename W>
ExpertView<W> ExpertOf(const LayerView<W>& view, std::int64_t expert, W* scratch);

}  // namespace draftmill

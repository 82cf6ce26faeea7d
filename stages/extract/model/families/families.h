// The families draftmill knows, each a constant of its own file, and the readers that several share.
#pragma once

#include "stages/extract/model/model_family.h"

namespace draftmill::families {

extern const ModelFamily kLlama;
extern const ModelFamily kMistral;
extern const ModelFamily kMistral3;
extern const ModelFamily kQwen2;
extern const ModelFamily kQwen3;
extern const ModelFamily kQwen3Moe;
extern const ModelFamily kPhi3;
extern const ModelFamily kGemma2;
extern const ModelFamily kGemma3Text;
extern const ModelFamily kGemma3;
extern const ModelFamily kGptOss;
extern const ModelFamily kDeepseekV3;
extern const ModelFamily kKimiK25;

/// hidden_act must be silu (swish is another name of it).
void RequireSilu(ConfigFields& fields);

/// One rotation for all layers, of the whole head.
void ReadPlainRope(ConfigFields& fields, ModelConfig& config);

/// sliding_window as the window of every layer; null for none. Absent means what the class takes: 0 for none.
void ReadWindowOfAllLayers(ConfigFields& fields, ModelConfig& config, std::int64_t of_class);

/// A window on all layers but every `period`-th, or by layer_types; absent means the class's. A window of no width is
/// refused where a layer needs one.
void ReadAlternatingWindow(ConfigFields& fields, ModelConfig& config, std::int64_t of_class, std::int64_t period);

/// Which layers have the window: layer_types where it is stated, else every layer for which `is_sliding(layer)`.
void ReadSlidingLayers(ConfigFields& fields, ModelConfig& config,
                       bool (*is_sliding)(std::int64_t layer, std::int64_t period), std::int64_t period);

/// layer_types must say of every layer what the other fields made of it: a family whose class does not read the list
/// would otherwise compute another model than the file describes.
void CheckLayerTypes(ConfigFields& fields, const ModelConfig& config);

}  // namespace draftmill::families

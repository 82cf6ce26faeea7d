// The attention branch of models with latent attention (MLA), in its expanded form: every head has keys and values of
// its own.
#pragma once

#include <memory>

#include "base/status.h"
#include "stages/extract/device/device_attention_branch.h"

namespace draftmill {

/// See AttentionBranch::Make; `config` has latent attention.
Result<std::unique_ptr<AttentionBranch>> MakeLatentBranch(const ModelConfig& config, NormRounding rounding);

}  // namespace draftmill

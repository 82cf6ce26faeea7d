// The lists of modules that a quantised checkpoint leaves as they were, as its config.json writes them.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const ModulePatterns kept, ModulePatterns::Compile(config.quantization));
//   if (kept.Matches("layers.0.self_attn.q_proj")) ...
//
// Two spellings: compressed-tensors (whole names, or "re:" and a regular expression that matches from the start) and
// transformers (regular expressions up to a module's boundary, or endings; quantizers_utils.should_convert_module).
// Expressions come from outside: PCRE2 runs them with small limits, and what it cannot decide within them is refused.
// Constant after Compile; safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

class ModulePatterns {
 public:
  /// kUnsupported names a pattern that is no regular expression or is too dear to match.
  static Result<ModulePatterns> Compile(const Quantization& quantization);

  /// True where a module, named without the prefix of the body ("layers.0.mlp.gate"; "lm_head"), is left unquantised.
  Result<bool> Matches(std::string_view module) const;

 private:
  struct Pattern;
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace draftmill

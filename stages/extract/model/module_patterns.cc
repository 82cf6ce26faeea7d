#include "stages/extract/model/module_patterns.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace draftmill {
namespace {

constexpr std::size_t kMaxPatterns = 100000;
constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kMatchLimit = 100000;
constexpr std::uint32_t kDepthLimit = 1000;

/// What may stand before a module's name in the published model.
constexpr std::array<std::string_view, 4> kPrefixes = {"model.", "", "language_model.model.", "model.language_model."};

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

/// Ends a transformers pattern: "layer.1" means "layer.1.attn" too, not "layer.11.attn".
constexpr const char* kModuleBoundary = ")(?:(?<=\\.)|(?=\\.|$))";

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct ModulePatterns::Pattern {
  std::string text;
  bool counts_as_ending = false;
  std::unique_ptr<pcre2_code, FreeCode> code;  ///< null: `text` is a whole name

  Result<bool> Matches(std::string_view name) const {
    if (counts_as_ending && name.ends_with(text)) return true;
    if (code == nullptr) return name == text;
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
    if (match == nullptr || context == nullptr) return OutOfMemory("no memory to match names of modules");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    const int found = pcre2_match(code.get(), Units(name), name.size(), 0, PCRE2_ANCHORED, match.get(), context.get());
    if (found >= 0) return true;
    if (found == PCRE2_ERROR_NOMATCH) return false;
    return Unsupported("config.json: the pattern \"" + text + "\" of unquantised modules is too dear to match");
  }
};

Result<ModulePatterns> ModulePatterns::Compile(const Quantization& quantization) {
  if (quantization.not_quantised.size() > kMaxPatterns) {
    return Unsupported("config.json: names more than " + std::to_string(kMaxPatterns) + " unquantised modules");
  }
  const bool is_compressed_tensors = quantization.method == QuantizationMethod::kPackedInt4;
  ModulePatterns patterns;
  for (const std::string& text : quantization.not_quantised) {
    auto pattern = std::make_shared<Pattern>();
    pattern->text = text;
    pattern->counts_as_ending = !is_compressed_tensors && !text.empty();
    std::string expression;
    if (is_compressed_tensors && text.starts_with("re:")) expression = text.substr(3);
    if (!is_compressed_tensors) expression = "(?:" + text + kModuleBoundary;
    if (!expression.empty()) {
      int error = 0;
      PCRE2_SIZE at = 0;
      if (expression.size() <= kMaxPatternBytes) {
        pattern->code.reset(
            pcre2_compile(Units(expression), expression.size(), PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
      }
      if (pattern->code == nullptr) {
        return Unsupported("config.json: the pattern \"" + text +
                           "\" of unquantised modules is no regular expression that "
                           "draftmill understands");
      }
    }
    patterns.patterns_.push_back(std::move(pattern));
  }
  return patterns;
}

Result<bool> ModulePatterns::Matches(std::string_view module) const {
  for (const auto& pattern : patterns_) {
    for (const std::string_view prefix : kPrefixes) {
      DRAFTMILL_ASSIGN_OR_RETURN(const bool matches, pattern->Matches(std::string(prefix) + std::string(module)));
      if (matches) return true;
    }
  }
  return false;
}

}  // namespace draftmill

#include "stages/tokenize/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stages/tokenize/tokenizer/regex_translator.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

constexpr std::size_t kJitStackBytes = std::size_t{8} << 20;
/// Steps of backtracking that one match may take, besides some for each byte of the text.
constexpr std::size_t kMatchSteps = 1'000'000;
constexpr std::size_t kMatchStepsPerByte = 32;
constexpr std::uint32_t kHeapKibibytes = 64 * 1024;

/// What one thread needs to match: a stack for JIT code, and room for the offsets of a match.
class MatchState {
 public:
  MatchState()
      : context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)),
        data_(pcre2_match_data_create(1, nullptr)) {
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    pcre2_set_heap_limit(context_, kHeapKibibytes);
  }
  ~MatchState() {
    pcre2_match_data_free(data_);
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_context* context() { return context_; }
  pcre2_match_data* data() { return data_; }

  static MatchState& OfThisThread() {
    thread_local MatchState state;
    return state;
  }

 private:
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
  pcre2_match_data* data_;
};

std::string MessageOf(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

Regex::Regex(std::unique_ptr<const Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Unsupported("a pattern of more than " + std::to_string(kMaxPatternBytes) + " bytes");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  pcre2_code* const compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C,
                    &error, &offset, context.get());
  if (compiled == nullptr) return InvalidInput("not a valid pattern: " + MessageOf(error));
  auto code = std::make_unique<const Code>(compiled);
  // Without JIT (a kernel that forbids it) matching is slower and gives the same.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

Status Regex::FindAll(std::string_view text, const std::function<void(std::uint32_t, std::uint32_t)>& found) const {
  MatchState& state = MatchState::OfThisThread();
  const std::size_t steps = kMatchSteps + kMatchStepsPerByte * text.size();
  pcre2_set_match_limit(state.context(), static_cast<std::uint32_t>(std::min<std::size_t>(steps, 1U << 30U)));
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t at = 0;
  std::size_t last_end = text.size() + 1;  // of the match before; none yet
  while (at <= text.size()) {
    const int result =
        pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, state.data(), state.context());
    if (result == PCRE2_ERROR_NOMATCH) return OkStatus();
    if (result < 0) {
      return InvalidInput("the tokenizer's split pattern needs too much backtracking on this text, near byte " +
                          std::to_string(at) + " (" + MessageOf(result) + ")");
    }
    const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(state.data());
    const std::size_t begin = offsets[0];
    const std::size_t end = offsets[1];
    if (begin == end && end == last_end) {
      at += at < text.size() ? Utf8SequenceLength(static_cast<std::uint8_t>(text[at])) : 1;
      continue;
    }
    at = end;
    last_end = end;
    found(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
  }
  return OkStatus();
}

}  // namespace draftmill

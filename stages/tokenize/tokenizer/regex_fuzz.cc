// Any bytes as a pattern: translated and compiled, or refused; what compiles matches within its limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stages/tokenize/tokenizer/regex.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view pattern(reinterpret_cast<const char*>(data), size);
  const auto regex = draftmill::Regex::Compile(pattern);
  if (!regex.ok()) return 0;
  static constexpr std::string_view kText =
      "The 1st  caf\u00e9\r\n\n aaaaaaaaaaaaaaaab e\u0301 \u4e2d\u6587\U0001f600 'll";
  std::size_t last = 0;
  const draftmill::Status status = regex->FindAll(kText, [&](std::uint32_t begin, std::uint32_t end) {
    if (begin < last || end < begin || end > kText.size()) __builtin_trap();
    last = end;
  });
  static_cast<void>(status.ok());
  return 0;
}

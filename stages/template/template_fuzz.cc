// libFuzzer: any bytes as a chat template, parsed and rendered on a small conversation. Nothing may crash, hang, or
// leave the bounds of the engine.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stages/template/test_render.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::string_view kVariables =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "héllo <|im_end|>"},
          {"role": "assistant", "content": "<think>a</think>b", "tool_calls": [{"type": "function",
           "function": {"name": "f", "arguments": {"x": 1.5, "y": [true, null, "é"]}}}]}, {"role": "tool", "content": "r"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})";
  draftmill::jinja::Limits limits;
  limits.steps = 200'000;
  limits.memory_bytes = std::size_t{16} << 20;
  limits.output_bytes = std::size_t{4} << 20;
  draftmill::jinja::RenderText({reinterpret_cast<const char*>(data), size}, kVariables, limits);
  return 0;
}

// A tokenizer.json small enough to read, for tests: a byte-level vocabulary of 256 bytes and a few merges.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "stages/tokenize/tokenizer/byte_alphabet.h"

namespace draftmill {

/// The parts of the file that a test sets, as JSON text.
struct SmallTokenizerJson {
  std::string added_tokens = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  std::string model_options;  ///< members of `model`, each with a comma behind
  /// Pairs of byte strings; ids are 256, 257, ... in order.
  std::vector<std::pair<std::string, std::string>> merges = {
      {"t", "h"}, {"th", "e"}, {" ", "the"}, {"1", "2"}, {"\n", "\n"}};
  std::string merges_text;  ///< instead of `merges`, where it is not empty

  std::string Text() const {
    std::string vocabulary;
    std::string merge_list;
    const auto name = [](std::string_view bytes) {
      std::string quoted;
      json::AppendQuoted(ByteLevelOfBytes(bytes), quoted);
      return quoted;
    };
    for (int byte = 0; byte < 256; ++byte) {
      const char content = static_cast<char>(byte);
      vocabulary += (byte == 0 ? "" : ",") + name({&content, 1}) + ":" + std::to_string(byte);
    }
    int id = 256;
    for (const auto& [left, right] : merges) {
      vocabulary += "," + name(left + right) + ":" + std::to_string(id++);
      merge_list += (merge_list.empty() ? "[" : ",[") + name(left) + "," + name(right) + "]";
    }
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added_tokens + R"(,"normalizer":)" +
           normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer + R"(,"post_processor":null,"decoder":null,"model":{)" +
           R"("type":"BPE",)" + model_options + R"("vocab":{)" + vocabulary + R"(},"merges":)" +
           (merges_text.empty() ? "[" + merge_list + "]" : merges_text) + "}}";
  }
};

}  // namespace draftmill

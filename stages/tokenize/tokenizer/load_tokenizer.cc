#include <string>

#include "base/hash.h"
#include "stages/tokenize/tokenizer.h"
#include "stages/tokenize/tokenizer/tokenizer_json.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// Several times the largest published file (33 MB).
constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;

}  // namespace

Result<std::unique_ptr<const Tokenizer>> Tokenizer::LoadFile(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string content, RealFileSystem().ReadAll(path, kMaxFileBytes));
  return ParseTokenizerJson(content, ToHex(HashBytes128(content))).WithContext(path);
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::LoadFolder(const std::string& model_folder) {
  return LoadFile(JoinPath(model_folder, "tokenizer.json"));
}

}  // namespace draftmill

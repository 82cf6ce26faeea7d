#include <optional>
#include <string>

#include "base/hash.h"
#include "stages/tokenize/tokenizer.h"
#include "stages/tokenize/tokenizer/tiktoken_model.h"
#include "stages/tokenize/tokenizer/tokenizer_json.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// Several times the largest published file (33 MB).
constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;

constexpr std::int64_t kMaxConfigBytes = std::int64_t{64} << 20;

bool LooksLikeJson(const std::string& content) {
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  return first == std::string::npos || content[first] == '{';
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> Tokenizer::LoadFile(const std::string& path) {
  FileSystem& files = RealFileSystem();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string content, files.ReadAll(path, kMaxFileBytes));
  if (LooksLikeJson(content)) {
    return ParseTokenizerJson(content, ToHex(HashBytes128(content))).WithContext(path);
  }
  const std::string config_path = JoinPath(ParentPath(path), "tokenizer_config.json");
  std::optional<std::string> config;
  if (files.Exists(config_path)) {
    DRAFTMILL_ASSIGN_OR_RETURN(config, files.ReadAll(config_path, kMaxConfigBytes));
  }
  return ParseTiktokenModel(content, config).WithContext(path);
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::LoadFolder(const std::string& model_folder) {
  for (const char* const name : {"tokenizer.json", "tiktoken.model"}) {
    const std::string path = JoinPath(model_folder, name);
    if (RealFileSystem().Exists(path)) return LoadFile(path);
  }
  return NotFound("no tokenizer.json and no tiktoken.model in " + model_folder +
                  "; other tokenizer files (tokenizer.model of SentencePiece) are not read. Name a model folder that "
                  "has one of the two in model.path");
}

}  // namespace draftmill

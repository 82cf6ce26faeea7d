#include "pipeline/reports/model_doctor.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "stages/extract/model/model_config.h"
#include "stages/tokenize/tokenizer.h"

namespace draftmill {
namespace {

/// Plain text, facts, counting, code: what any language model has seen, long enough for its head to be often right.
constexpr std::array<std::string_view, 6> kSentences = {
    "The quick brown fox jumps over the lazy dog, and then it runs away as fast as it can.",
    "Water boils at one hundred degrees Celsius at sea level, but on a high mountain it boils at a lower temperature.",
    "def add(a, b):\n    \"\"\"Return the sum of two numbers.\"\"\"\n    return a + b\n\n\nprint(add(2, 3))\n",
    "Paris is the capital of France, Rome is the capital of Italy, and Madrid is the capital of Spain.",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday. January, February, March, April, May, June, July.",
};

Result<std::vector<std::vector<std::int32_t>>> TokenizedSentences(const std::string& model_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::LoadFolder(model_folder));
  const Tokenizer::Scratch scratch = tokenizer->MakeScratch();
  std::vector<std::vector<std::int32_t>> rows;
  for (const std::string_view sentence : kSentences) {
    Encoding encoding;
    DRAFTMILL_RETURN_IF_ERROR(tokenizer->Encode(sentence, {}, *scratch, encoding));
    rows.push_back(std::move(encoding.ids));
  }
  return rows;
}

ModelExamination NotExamined(const std::string& why) {
  return {true, json::Object{{"verdict", why}, {"sound", nullptr}}};
}

}  // namespace

Result<ModelExamination> DoctorModel(ExtractOptions options, const std::string& reference_path) {
  if (!ExtractorIsBuilt()) return NotExamined("this draftmill was built without torch: only headers were looked at");
  ExaminationRequest request;
  request.reference_path = reference_path;
  if (reference_path.empty()) {
    DRAFTMILL_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(options.model_folder));
    Result<std::vector<std::vector<std::int32_t>>> rows = TokenizedSentences(options.model_folder);
    if (rows.status().code() == StatusCode::kNotFound)
      return NotExamined("no weights were read: " + rows.status().message());
    DRAFTMILL_RETURN_IF_ERROR(rows.status());
    request.rows = std::move(*rows);
    if (options.layers.empty() && !DefaultEagle3Layers(config.num_layers).ok()) {
      for (std::int64_t layer = 0; layer <= config.num_layers; ++layer)
        options.layers.push_back(static_cast<std::int32_t>(layer));
    }
  }
  request.options = std::move(options);
  return ExamineModel(request);
}

}  // namespace draftmill

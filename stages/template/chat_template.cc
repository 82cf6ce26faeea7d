#include "stages/template/chat_template.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "stages/template/parser.h"
#include "stages/template/prompt_analysis.h"

namespace draftmill::jinja {

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  if (const std::size_t bad = ValidUtf8Length(source); bad != source.size()) {
    return InvalidInput("the chat template is no UTF-8 at byte " + std::to_string(bad));
  }
  std::unique_ptr<ChatTemplate> result(new ChatTemplate());
  DRAFTMILL_ASSIGN_OR_RETURN(result->parsed_, jinja::Parse(source));
  result->prompt_is_constant_ = PromptIsConstant(*result->parsed_);
  result->fingerprint_ = ToHex(HashBytes128(source));
  return std::unique_ptr<const ChatTemplate>(std::move(result));
}

}  // namespace draftmill::jinja

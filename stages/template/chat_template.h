// A model's chat template, ready to be rendered: jinja2 as transformers sets it up, without Python.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<const ChatTemplate> chat_template, ChatTemplate::Parse(source));
//
// The engine has what real chat templates use (docs/templates.md lists it); anything else is refused by name and line
// when the template is parsed, or, where only the data can tell, when it is rendered. Output equals that of jinja2 3.1
// in an ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, {% generation %} and
// transformers' tojson, raise_exception and strftime_now. A template is untrusted: size, nesting, time and memory are
// bounded. Thread-safety: a ChatTemplate is const and shared; an Evaluator (evaluator.h) belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "stages/template/ast.h"

namespace draftmill::jinja {

class ChatTemplate {
 public:
  /// Reads the template's text. kInvalidInput for what jinja2 refuses too, kUnsupported for what only the engine
  /// refuses.
  static Result<std::unique_ptr<const ChatTemplate>> Parse(std::string_view source);

  const ParsedTemplate& parsed() const { return *parsed_; }
  bool has_generation_blocks() const { return parsed_->has_generation; }
  /// True where what add_generation_prompt appends provably depends on the configuration alone, not on the messages.
  bool prompt_is_constant() const { return prompt_is_constant_; }
  /// XXH3-128 of the source, hex.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  ChatTemplate() = default;

  std::unique_ptr<const ParsedTemplate> parsed_;
  bool prompt_is_constant_ = false;
  std::string fingerprint_;
};

}  // namespace draftmill::jinja

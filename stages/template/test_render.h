// Renders a template on JSON variables, for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "stages/template/chat_template.h"
#include "stages/template/evaluator.h"

namespace draftmill::jinja {

/// The text, or "! " and the message of a refusal.
inline std::string RenderText(std::string_view source, std::string_view variables = "{}", const Limits& limits = {}) {
  const Result<std::unique_ptr<const ChatTemplate>> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return "! " + parsed.status().message();
  const Result<json::Value> context = json::Parse(variables);
  if (!context.ok()) return "! variables: " + context.status().message();
  Evaluator evaluator(limits);
  const ParsedTemplate& tree = (*parsed)->parsed();
  std::vector<Value> values(tree.names.size(), Value::Undefined(nullptr));
  const auto set = [&](const std::string& name, Value value) {
    const auto id = tree.name_ids.find(name);
    if (id != tree.name_ids.end()) values[id->second] = value;
  };
  set("namespace", Value::Of(GlobalFunction::kNamespace));
  set("raise_exception", Value::Of(GlobalFunction::kRaiseException));
  set("strftime_now", Value::Of(GlobalFunction::kStrftimeNow));
  set("range", Value::Of(GlobalFunction::kRange));
  set("dict", Value::Of(GlobalFunction::kDict));
  for (const json::Member& variable : context->as_object()) {
    set(variable.first, FromJson(evaluator.arena(), variable.second, Provenance()));
  }
  const Status status = evaluator.Render(tree, values, {2025, 3, 9, 7, 5, 3});
  if (!status.ok()) return "! " + status.message();
  std::string text;
  for (const OutputRun& run : evaluator.output()) text.append(run.data, run.size);
  return text;
}

}  // namespace draftmill::jinja

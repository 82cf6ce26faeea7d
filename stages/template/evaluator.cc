#include "stages/template/evaluator.h"

#include <algorithm>

#include "stages/template/evaluator_guards.h"
#include "stages/template/python_format.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {

Status Evaluator::Render(const ParsedTemplate& parsed, std::span<const Value> variables, const DateTime& now) {
  failure_ = OkStatus();
  parsed_ = &parsed;
  now_ = now;
  steps_ = 0;
  arena_.ResetWork();
  depth_ = 0;
  root_.assign(variables.begin(), variables.end());
  bindings_.clear();
  frames_.clear();
  frames_.push_back({0, 0, 0, 0});
  frame_ = 0;
  output_.clear();
  output_bytes_ = 0;
  owner_ = Provenance::kNoMessage;
  anonymous_iteration_ = false;
  generation_ = 0;
  builder_.Clear();
  Run(parsed.body);
  // What left off past the budget said nothing of it.
  if (!failed() && arena_.over_budget()) FailLimits();
  return failure_;
}

Value Evaluator::Fail(const std::string& message) {
  if (!failed()) failure_ = InvalidInput("template line " + std::to_string(line_) + ": " + message);
  return Value::None();
}

Value Evaluator::FailType(std::string_view what, const Value& value) {
  if (value.is_undefined()) return FailUndefined(value);
  return Fail(std::string(what) + " '" + TypeName(value) + "'");
}

Value Evaluator::FailUndefined(const Value& value) {
  const Expr* origin = value.origin();
  if (value.is_unsafe()) return Fail("the sandbox forbids '" + (origin != nullptr ? origin->text : "") + "'");
  if (origin == nullptr || origin->text.empty()) return Fail("a value is undefined");
  return Fail("'" + origin->text + "' is undefined");
}

void Evaluator::FailLimits() {
  if (steps_ > limits_.steps || arena_.over_work()) {
    Fail("the template does not end within " + std::to_string(limits_.steps) + " steps");
  } else {
    Fail("the template needs more than " + std::to_string(limits_.memory_bytes >> 20) + " MiB");
  }
}

bool Evaluator::FitsText(std::size_t bytes) {
  if (bytes <= kMaximumTextBytes && arena_.Fits(bytes)) return true;
  Fail("the template builds a text of " + std::to_string(bytes) + " bytes");
  return false;
}

// ---- scopes ---------------------------------------------------------------------------------------------------------

Value Evaluator::Lookup(NameId name, const Expr* origin) {
  for (std::size_t frame = frame_; frame != 0; frame = frames_[frame].parent) {
    const std::size_t end = frame + 1 == frames_.size() ? bindings_.size() : frames_[frame].end;
    for (std::size_t i = end; i > frames_[frame].begin; --i) {
      if (bindings_[i - 1].name == name) return bindings_[i - 1].value;
    }
  }
  const Value& value = root_[name];
  return value.is_undefined() && value.origin() == nullptr ? Value::Undefined(origin) : value;
}

void Evaluator::Assign(NameId name, const Value& value) {
  if (anonymous_iteration_) {
    if (const std::int32_t message = MessageOf(value); message != Provenance::kNoMessage) owner_ = message;
  }
  if (frame_ == 0) {
    root_[name] = value;
    return;
  }
  for (std::size_t i = frames_[frame_].begin; i < bindings_.size(); ++i) {
    if (bindings_[i].name == name) {
      bindings_[i].value = value;
      return;
    }
  }
  bindings_.push_back({name, value});
}

void Evaluator::AssignTarget(const Target& target, const Value& value) {
  if (!target.items.empty()) return Unpack(target, value);
  if (target.attribute.empty()) return Assign(target.name, value);
  const Value object = Lookup(target.name, nullptr);
  if (object.kind() != ValueKind::kNamespace) {
    Fail("cannot assign attribute on non-namespace object");
    return;
  }
  if (target.attribute.starts_with('_')) {
    Fail("the attribute '" + target.attribute + "' of a namespace must not begin with '_'");
    return;
  }
  Namespace& names = *object.names();
  for (std::uint32_t i = 0; i < names.size; ++i) {
    if (names.entries[i].name == target.attribute) {
      names.entries[i].value = value;
      return;
    }
  }
  if (names.size == names.entries.size()) {
    const std::span<NamespaceEntry> grown = arena_.MakeArray<NamespaceEntry>(names.size * std::size_t{2} + 4);
    std::copy(names.entries.begin(), names.entries.end(), grown.begin());
    names.entries = grown;
  }
  names.entries[names.size++] = {target.attribute, value};
}

void Evaluator::Unpack(const Target& target, const Value& value) {
  const auto items = Iterate(arena_, value);
  if (!items) {
    FailType("cannot unpack non-iterable", value);
    return;
  }
  if (items->size() != target.items.size()) {
    Fail("cannot unpack " + std::to_string(items->size()) + " values into " + std::to_string(target.items.size()) +
         " names");
    return;
  }
  for (std::size_t i = 0; i < items->size(); ++i) AssignTarget(target.items[i], (*items)[i]);
}

// ---- statements -----------------------------------------------------------------------------------------------------

Evaluator::Flow Evaluator::Run(const Body& body) {
  for (const Stmt* stmt : body) {
    const Flow flow = Run(*stmt);
    if (failed()) return Flow::kStop;
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::Run(const Stmt& stmt) {
  if (!Step()) return Flow::kStop;
  const DepthGuard depth(*this);
  if (failed()) return Flow::kStop;
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kData: WriteRun({stmt.data.text()->data, stmt.data.text()->size}, Provenance()); break;
    case StmtKind::kOutput: Write(Eval(*stmt.expr)); break;
    case StmtKind::kIf: return RunIf(stmt);
    case StmtKind::kFor: return RunFor(stmt);
    case StmtKind::kSet: AssignTarget(stmt.target, Eval(*stmt.expr)); break;
    case StmtKind::kSetBlock: RunSetBlock(stmt); break;
    case StmtKind::kMacro: RunMacro(stmt); break;
    case StmtKind::kFilterBlock: RunFilterBlock(stmt); break;
    case StmtKind::kGeneration: RunGeneration(stmt); break;
    case StmtKind::kCallBlock: RunCallBlock(stmt); break;
    case StmtKind::kWith: return RunWith(stmt);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::RunIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    const bool taken = branch.condition == nullptr || Truth(Eval(*branch.condition));
    if (failed()) return Flow::kStop;
    if (taken) return Run(branch.body);
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::RunFor(const Stmt& stmt) {
  const Value iterable = Eval(*stmt.expr);
  if (failed()) return Flow::kStop;
  const auto items = Iterate(arena_, iterable);
  if (!items) {
    FailType("cannot iterate over", iterable);
    return Flow::kStop;
  }
  return RunLoop(stmt, *items, frame_, 1);
}

/// The iterations of a loop whose own scope lies in `outer_frame`.
Evaluator::Flow Evaluator::RunLoop(const Stmt& stmt, std::span<const Value> items, std::size_t outer_frame,
                                   int loop_depth) {
  LoopState* loop = arena_.Make<LoopState>();
  loop->source = items;
  loop->depth = loop_depth;
  loop->stmt = &stmt;
  loop->filtered = stmt.filter != nullptr;
  loop->outer_frame = outer_frame;
  const NameId loop_name = parsed_->loop_name;
  const std::int32_t outer_owner = owner_;
  const bool outer_anonymous = anonymous_iteration_;
  bool otherwise = true;  // as jinja2: only an iteration that runs to its end turns the else branch off
  Flow flow = Flow::kNormal;
  {
    FrameGuard frame(*this, outer_frame);
    Value item;
    while (FetchNext(*loop, item)) {
      frame.Clear();
      loop->has_before = loop->index0 >= 0;
      loop->before = loop->current;
      loop->current = item;
      ++loop->index0;
      const std::int32_t message = MessageOf(item);
      owner_ = message != Provenance::kNoMessage ? message : outer_owner;
      anonymous_iteration_ = false;
      AssignTarget(stmt.target, item);
      if (loop_name != kNoName) Assign(loop_name, Value::Of(loop));
      anonymous_iteration_ = message == Provenance::kNoMessage;
      flow = Run(stmt.body);
      if (flow == Flow::kStop || flow == Flow::kBreak) break;
      if (flow == Flow::kNormal) otherwise = false;
    }
  }
  owner_ = outer_owner;
  anonymous_iteration_ = outer_anonymous;
  if (failed()) return Flow::kStop;
  if (otherwise && !stmt.otherwise.empty()) {
    const FrameGuard frame(*this, outer_frame);
    return Run(stmt.otherwise);
  }
  return Flow::kNormal;
}

/// loop(items) inside a recursive loop: the text that its body makes of these items.
Value Evaluator::CallLoop(LoopState& loop, const Arguments& arguments) {
  if (!loop.stmt->recursive) return Fail("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) return Fail("a recursive loop takes one list");
  const auto items = Iterate(arena_, arguments.positional[0]);
  if (!items) return FailType("cannot iterate over", arguments.positional[0]);
  const DepthGuard depth(*this);
  if (failed()) return Value::None();
  const std::size_t first_run = output_.size();
  const int line = line_;
  RunLoop(*loop.stmt, *items, loop.outer_frame, loop.depth + 1);
  line_ = failed() ? line_ : line;
  return Capture(first_run);
}

bool Evaluator::FetchNext(LoopState& loop, Value& item) {
  if (loop.has_after) {
    loop.has_after = false;
    item = loop.after;
    return true;
  }
  while (loop.next < loop.source.size() && Step()) {
    item = loop.source[loop.next++];
    if (!loop.filtered) return true;
    FrameGuard frame(*this, loop.outer_frame);
    AssignTarget(loop.stmt->target, item);
    const bool passes = Truth(Eval(*loop.stmt->filter));
    if (failed()) return false;
    if (passes) return true;
  }
  return false;
}

std::size_t Evaluator::LoopLength(LoopState& loop) {
  if (loop.filtered) {  // the items to come are filtered now, as jinja2 does it
    std::vector<Value> rest;
    const bool had_after = loop.has_after;
    Value item;
    if (had_after) FetchNext(loop, item);
    const Value after = item;
    while (FetchNext(loop, item)) rest.push_back(item);
    loop.filtered = false;
    const auto skipped = static_cast<std::size_t>(loop.index0 + 1) + (had_after ? 1 : 0);
    const std::span<Value> source = arena_.MakeArray<Value>(skipped + rest.size());
    std::copy(rest.begin(), rest.end(), source.begin() + static_cast<std::ptrdiff_t>(skipped));
    loop.source = source;
    loop.next = skipped;
    loop.has_after = had_after;
    loop.after = after;
  }
  return loop.source.size();
}

Value Evaluator::LoopAttribute(LoopState& loop, const Expr& expr) {
  const std::string_view name = expr.text;
  if (name == "index") return Value::Integer(loop.index0 + 1);
  if (name == "index0") return Value::Integer(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last" || name == "nextitem") {
    if (!loop.has_after) {
      Value item;
      loop.has_after = FetchNext(loop, item);
      loop.after = item;
    }
    if (name == "last") return Value::Bool(!loop.has_after);
    return loop.has_after ? loop.after : Value::Undefined(&expr);
  }
  if (name == "previtem") return loop.has_before ? loop.before : Value::Undefined(&expr);
  if (name == "length") return Value::Integer(static_cast<std::int64_t>(LoopLength(loop)));
  if (name == "revindex") return Value::Integer(static_cast<std::int64_t>(LoopLength(loop)) - loop.index0);
  if (name == "revindex0") return Value::Integer(static_cast<std::int64_t>(LoopLength(loop)) - loop.index0 - 1);
  if (name == "depth") return Value::Integer(loop.depth);
  if (name == "depth0") return Value::Integer(loop.depth - 1);
  return Value::Undefined(&expr);
}

void Evaluator::RunSetBlock(const Stmt& stmt) {
  const std::size_t first_run = output_.size();
  {
    const FrameGuard frame(*this, frame_);
    Run(stmt.body);
  }
  Value text = Capture(first_run);
  if (stmt.expr != nullptr) text = EvalFilterChain(*stmt.expr, text);
  if (!failed()) AssignTarget(stmt.target, text);
}

void Evaluator::RunMacro(const Stmt& stmt) {
  Macro* macro = arena_.Make<Macro>();
  macro->stmt = &stmt;
  macro->frame = frame_;
  macro->serial = frames_[frame_].serial;
  Assign(stmt.name, Value::Of(macro));
}

void Evaluator::RunFilterBlock(const Stmt& stmt) {
  const std::size_t first_run = output_.size();
  {
    const FrameGuard frame(*this, frame_);
    Run(stmt.body);
  }
  const Value text = Capture(first_run);
  if (!failed()) Write(EvalFilterChain(*stmt.expr, text));
}

void Evaluator::RunGeneration(const Stmt& stmt) {
  const FrameGuard frame(*this, frame_);
  ++generation_;
  Run(stmt.body);
  --generation_;
}

void Evaluator::RunCallBlock(const Stmt& stmt) {
  Macro* caller = arena_.Make<Macro>();
  caller->stmt = &stmt;
  caller->frame = frame_;
  caller->serial = frames_[frame_].serial;
  const Value value = Value::Of(caller);
  const Value text = EvalCall(*stmt.expr, &value);
  if (!failed()) Write(text);
}

Evaluator::Flow Evaluator::RunWith(const Stmt& stmt) {
  std::vector<Value> values;
  for (const Assignment& assignment : stmt.assignments) values.push_back(Eval(*assignment.value));
  if (failed()) return Flow::kStop;
  const FrameGuard frame(*this, frame_);
  for (std::size_t i = 0; i < values.size(); ++i) AssignTarget(stmt.assignments[i].target, values[i]);
  return failed() ? Flow::kStop : Run(stmt.body);
}

// ---- output ---------------------------------------------------------------------------------------------------------

void Evaluator::WriteRun(std::string_view bytes, Provenance tag) {
  if (bytes.empty()) return;
  output_bytes_ += bytes.size();
  if (output_bytes_ > output_limit_) {
    Fail("the template writes more than " + std::to_string(output_limit_) + " bytes, too many for this row");
    return;
  }
  if (output_.size() >= limits_.output_runs) {
    Fail("the template writes more than " + std::to_string(limits_.output_runs) + " pieces");
    return;
  }
  tag = tag.OwnedBy(owner_);
  if (generation_ > 0) tag = tag.WithGeneration();
  if (IsOfEarlierMessage(tag)) tag = tag.InLaterMessage();
  output_.push_back({bytes.data(), static_cast<std::uint32_t>(bytes.size()), tag});
}

void Evaluator::Write(const Value& value) {
  if (failed() || value.is_undefined()) return;
  const Value text = value.is_text() ? value : ToText(value);
  if (failed()) return;
  VisitRuns(arena_, text, [this](std::string_view bytes, Provenance tag) { WriteRun(bytes, tag); });
}

/// Takes the runs from `first_run` on out of the output and makes a text of them.
Value Evaluator::Capture(std::size_t first_run) {
  const std::size_t count = output_.size() - first_run;
  const std::span<TextPiece> pieces = arena_.MakeArray<TextPiece>(count);
  const std::span<TextRep> reps = arena_.MakeArray<TextRep>(count);
  std::size_t size = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const OutputRun& run = output_[first_run + i];
    reps[i].data = run.data;
    reps[i].size = run.size;
    pieces[i] = {&reps[i], run.tag};
    size += run.size;
  }
  output_.resize(first_run);
  output_bytes_ -= size;
  if (count == 0) return ConstantText("");
  if (count == 1) return Value::Text(pieces[0].rep, pieces[0].tag);
  TextRep* joined = arena_.Make<TextRep>();
  joined->size = static_cast<std::uint32_t>(size);
  joined->count = static_cast<std::uint32_t>(count);
  joined->pieces = pieces.data();
  return Value::Text(joined, Provenance());
}

Value Evaluator::ToText(const Value& value) {
  if (value.is_text()) return value;
  if (value.is_undefined()) return ConstantText("");
  std::string reason;
  builder_.Clear();
  if (!AppendStr(arena_, value, Literal(), builder_, reason)) return Fail(reason);
  Charge(builder_.size());
  if (!FitsText(builder_.size())) return Value::None();
  return builder_.Finish(arena_);
}

}  // namespace draftmill::jinja

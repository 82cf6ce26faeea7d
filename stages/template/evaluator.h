// Runs a parsed template. Internal to the template library: chat_template.h is its public face.
//
// Errors are sticky: the first one is kept, every loop and statement looks at failed(), and values computed after it
// mean nothing. So no operation needs an error path of its own, and no exception is used. Time, memory, output and
// nesting are bounded (Limits). One evaluator per thread; it keeps its memory between renderings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "stages/template/arena.h"
#include "stages/template/ast.h"
#include "stages/template/builtins.h"
#include "stages/template/number_format.h"
#include "stages/template/strftime.h"
#include "stages/template/value.h"

namespace draftmill::jinja {

/// What one rendering may use. The defaults let any real template on any real row pass and end the others within a
/// second.
struct Limits {
  std::int64_t steps = 5'000'000;                    ///< nodes evaluated, plus bytes handled by built-ins / 64
  std::size_t memory_bytes = std::size_t{96} << 20;  ///< of values
  std::size_t output_bytes = std::size_t{48} << 20;
  /// Of these any row may make so many; beyond that it must be large itself: a template writes what a row says and a
  /// little more, and whatever is written has to be tokenized.
  std::size_t small_output_bytes = std::size_t{2} << 20;
  std::size_t output_per_row_byte = 8;
  std::size_t output_runs = std::size_t{1} << 20;  ///< pieces of different origin that are written
  int depth = 1'200;                               ///< statements, expressions and macro calls within each other
};

/// Bytes that the template wrote, in order; they live in the arena, the template or the row.
struct OutputRun {
  const char* data = nullptr;
  std::uint32_t size = 0;
  Provenance tag;
};

/// A macro as a value: its statement and the scope that it sees.
struct Macro {
  const Stmt* stmt = nullptr;
  std::size_t frame = 0;
  std::uint64_t serial = 0;
};

/// x.method without the call.
struct BoundMethod {
  Value object;
  MethodId method = MethodId::kNone;
};

struct NamedValue {
  std::string_view name;
  Value value;
};

/// The evaluated arguments of a filter, test, method or function, and its name for messages.
struct Arguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
  std::string_view callee;
};

/// How the fields of one str.format() name their arguments.
struct FieldNumbers {
  std::size_t next = 0;  ///< of fields without a number
  bool automatic = false;
  bool manual = false;
};

class Evaluator {
 public:
  explicit Evaluator(const Limits& limits) : limits_(limits), arena_(limits.memory_bytes, limits.steps) {
    SetRowBytes(0);
  }

  Arena& arena() { return arena_; }

  /// Sets how much the renderings to come may write, from the size of the row that they show.
  void SetRowBytes(std::size_t bytes) {
    const std::size_t wanted = limits_.small_output_bytes + bytes * limits_.output_per_row_byte;
    output_limit_ = wanted < limits_.output_bytes ? wanted : limits_.output_bytes;
  }

  /// Says which message the text of each slot belongs to, for the renderings to come; `slots` must outlive them. Without it
  /// no text counts as written in a later message's iteration.
  void SetFieldSlots(std::span<const FieldSlot> slots) { slots_ = slots; }

  /// Renders. `variables` holds the value of each NameId of the template, undefined where there is none. The runs stay
  /// valid until the arena is rewound or the next rendering.
  Status Render(const ParsedTemplate& parsed, std::span<const Value> variables, const DateTime& now);
  std::span<const OutputRun> output() const { return output_; }
  std::size_t output_bytes() const { return output_bytes_; }

 private:
  enum class Flow : std::uint8_t { kNormal, kBreak, kContinue, kStop };

  struct Binding {
    NameId name;
    Value value;
  };
  struct Frame {
    std::size_t begin;   ///< first of its bindings
    std::size_t end;     ///< one past its last binding, once another frame stands above it
    std::size_t parent;  ///< the scope in which it was written
    std::uint64_t serial;
  };
  class DepthGuard;
  class FrameGuard;

  // evaluator.cc: failures, scopes, statements.
  bool failed() const { return !failure_.ok(); }
  Value Fail(const std::string& message);
  Value FailType(std::string_view what, const Value& value);
  Value FailUndefined(const Value& value);
  bool Step() {
    if (++steps_ <= limits_.steps && !arena_.over_budget()) return true;
    FailLimits();
    return false;
  }
  void FailLimits();
  void Charge(std::size_t bytes) { steps_ += static_cast<std::int64_t>(bytes / 64); }
  Value Lookup(NameId name, const Expr* origin);
  void Assign(NameId name, const Value& value);
  void AssignTarget(const Target& target, const Value& value);
  void Unpack(const Target& target, const Value& value);
  Flow Run(const Body& body);
  Flow Run(const Stmt& stmt);
  Flow RunIf(const Stmt& stmt);
  Flow RunFor(const Stmt& stmt);
  Flow RunLoop(const Stmt& stmt, std::span<const Value> items, std::size_t outer_frame, int loop_depth);
  Value CallLoop(LoopState& loop, const Arguments& arguments);
  void RunSetBlock(const Stmt& stmt);
  void RunMacro(const Stmt& stmt);
  void RunFilterBlock(const Stmt& stmt);
  void RunGeneration(const Stmt& stmt);
  void RunCallBlock(const Stmt& stmt);
  Flow RunWith(const Stmt& stmt);
  void Write(const Value& value);
  void WriteRun(std::string_view bytes, Provenance tag);
  Value Capture(std::size_t first_run);
  bool FetchNext(LoopState& loop, Value& item);
  std::size_t LoopLength(LoopState& loop);
  Value LoopAttribute(LoopState& loop, const Expr& expr);

  // evaluator_expressions.cc
  Value Eval(const Expr& expr);
  Value EvalAttribute(const Expr& expr);
  Value EvalSubscript(const Expr& expr);
  Value EvalSlice(const Expr& expr);
  Value EvalUnary(const Expr& expr);
  Value EvalArithmetic(const Expr& expr);
  Value Operate(ExprKind kind, const Value& a, const Value& b);
  Value Power(const Value& a, const Value& b);
  Value EvalConcat(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalList(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value Add(const Value& a, const Value& b);
  Value Multiply(const Value& a, const Value& b);
  Value Arithmetic(ExprKind kind, const Value& a, const Value& b);
  bool CompareWith(CompareOperator op, const Value& a, const Value& b);
  bool Contains(const Value& container, const Value& item);
  Value GetAttribute(const Value& object, const Expr& expr);
  Value GetItem(const Value& object, const Value& key, const Expr* origin);
  Value MethodValue(const Value& object, MethodId method, const Expr* origin);
  Value CheckDepth(Value value);
  std::span<const Value> EvalAll(const std::vector<const Expr*>& items);
  std::span<const Value> EvalPositional(const Expr& call);
  std::span<const NamedValue> EvalNamed(const Expr& call);

  // evaluator_calls.cc
  Value EvalCall(const Expr& expr, const Value* caller);
  Value EvalFilter(const Expr& expr, const Value& input);
  Value EvalFilterChain(const Expr& expr, const Value& input);
  Value EvalTest(const Expr& expr);
  Value CallValue(const Value& callee, const Arguments& arguments);
  Value CallMacro(const Macro& macro, const Arguments& arguments);
  void BindParameters(const Stmt& macro, const Arguments& arguments);
  Value CallFunction(GlobalFunction function, const Arguments& arguments);
  Value MakeNamespace(const Arguments& arguments);
  Value MakeDictFrom(const Arguments& arguments);
  Value Range(const Arguments& arguments);

  // evaluator_methods.cc
  Value CallMethod(const Value& object, MethodId method, const Arguments& arguments);
  Value CallTextMethod(const Value& object, MethodId method, const Arguments& arguments);
  Value CallListMethod(const Value& object, MethodId method, const Arguments& arguments);
  Value CallDictMethod(const Value& object, MethodId method, const Arguments& arguments);
  Value DictView(const Dict& dict, MethodId method);
  Value SplitText(const Value& object, MethodId method, const Arguments& arguments);
  Value SplitBy(const FlatText& text, std::string_view separator, std::int64_t limit, bool from_end);
  Value SplitBySpace(const FlatText& text, std::int64_t limit);
  Value SplitBySpaceFromEnd(const FlatText& text, std::int64_t limit);
  Value SplitLines(const Value& object, const Arguments& arguments);
  Value StripText(const Value& object, MethodId method, const Arguments& arguments);
  Value StartsOrEnds(const Value& object, MethodId method, const Arguments& arguments);
  Value FindText(const Value& object, MethodId method, const Arguments& arguments);
  Value PartitionText(const Value& object, MethodId method, const Arguments& arguments);
  Value ReplaceText(const Value& object, const Value& from, const Value& to, std::int64_t count);
  Value ChangeCase(const Value& object, MethodId method);
  Value ChangeAsciiCase(const FlatText& text, MethodId method);
  Value ClassifyText(const Value& object, MethodId method);
  Value EscapeHtml(const Value& text);
  Value JoinWith(const Value& separator, std::span<const Value> items);

  // evaluator_format.cc
  Value FormatPercent(const Value& format, const Value& given);
  void AppendConverted(const Value& value, FormatSpec spec, TextBuilder& out);
  Value FormatBraces(const Value& format, const Arguments& arguments);
  void AppendField(std::string_view field, const Arguments& arguments, FieldNumbers& numbers, TextBuilder& out);
  Value FieldValue(std::string_view name, const Arguments& arguments, FieldNumbers& numbers);
  void AppendFormatted(const Value& value, bool is_plain, const FormatSpec& spec, TextBuilder& out);
  Value PadText(const Value& object, MethodId method, const Arguments& arguments);
  Value ToRepr(const Value& value);

  // evaluator_list_filters.cc
  Value FilterMinMax(FilterId filter, const Value& input, const Arguments& arguments);
  Value FilterSum(const Value& input, const Arguments& arguments);
  Value FilterRound(const Value& input, const Arguments& arguments);
  Value FilterBatch(const Value& input, const Arguments& arguments);
  Value FilterSlice(const Value& input, const Arguments& arguments);
  Value FilterGroupby(const Value& input, const Arguments& arguments);

  // evaluator_text_filters.cc
  Value FilterIndent(const Value& input, const Arguments& arguments);
  Value FilterReplace(const Value& input, const Arguments& arguments);
  Value FilterTrim(const Value& input, const Arguments& arguments);
  Value FilterCenter(const Value& input, const Arguments& arguments);
  Value FilterFormat(const Value& input, const Arguments& arguments);
  Value FilterTruncate(const Value& input, const Arguments& arguments);
  Value FilterTitle(const Value& input);
  Value FilterWordcount(const Value& input);

  // evaluator_filters.cc
  Value ApplyFilter(FilterId filter, const Value& input, const Arguments& arguments);
  Value FilterLength(const Value& input);
  Value FilterDefault(const Value& input, const Arguments& arguments);
  Value FilterTojson(const Value& input, const Arguments& arguments);
  Value FilterJoin(const Value& input, const Arguments& arguments);
  Value FilterMap(const Value& input, const Arguments& arguments);
  Value FilterSelect(FilterId filter, const Value& input, const Arguments& arguments);
  Value FilterDictsort(const Value& input, const Arguments& arguments);
  Value FilterSort(const Value& input, const Arguments& arguments);
  Value FilterUnique(const Value& input, const Arguments& arguments);
  Value FilterFirst(const Value& input);
  Value FilterLast(const Value& input);
  Value FilterReverse(const Value& input);
  Value FilterInt(const Value& input, const Arguments& arguments);
  Value FilterFloat(const Value& input, const Arguments& arguments);
  Value FilterAbs(const Value& input);
  bool ApplyTest(TestId test, const Value& input, const Arguments& arguments);
  bool TestNumberOrOrder(TestId test, const Value& input, const Arguments& arguments);
  Value AttributePath(const Value& item, const Value& path);
  std::vector<Value> SplitNames(const Value& names);
  Value SortKey(const Value& item, const Value* path, bool case_sensitive);
  std::span<Value> SortBy(std::span<const Value> items, std::span<const Value> keys, bool reverse);

  // Shared by the built-ins.
  /// Distributes arguments over parameter names; a missing one stays nullptr. False after a failure.
  bool Bind(const Arguments& arguments, std::span<const std::string_view> names, std::span<const Value*> out);
  FlatText Read(const Value& text) {
    Charge(text.text()->size);
    return Flatten(arena_, text);
  }
  std::string_view ReadBytes(const Value& text) { return Read(text).bytes; }
  /// str(value) as a value.
  Value ToText(const Value& value);
  std::span<Value> Items(const Value& value);
  Value NewText(std::string_view bytes) { return TextOf(arena_, {arena_.CopyBytes(bytes), bytes.size()}, Literal()); }
  Value ConstantText(std::string_view bytes) { return TextOf(arena_, bytes, Literal()); }
  Provenance Literal() const { return Provenance::Literal(owner_); }
  bool IsOfEarlierMessage(Provenance tag) const {
    if (!tag.is_field() || tag.slot() >= slots_.size()) return false;
    const std::int32_t message = slots_[tag.slot()].message;
    return message != Provenance::kNoMessage && message < owner_;
  }
  bool FitsText(std::size_t bytes);

  Limits limits_;
  Arena arena_;
  Status failure_;
  int line_ = 0;  ///< of the statement or call that runs, for messages
  std::int64_t steps_ = 0;
  int depth_ = 0;
  const ParsedTemplate* parsed_ = nullptr;
  DateTime now_;
  std::span<const FieldSlot> slots_;
  std::vector<Value> root_;  ///< by NameId: the context, and what is set outside every inner scope
  std::vector<Binding> bindings_;
  std::vector<Frame> frames_;  ///< the first one stands for root_
  std::size_t frame_ = 0;
  std::uint64_t next_serial_ = 1;
  std::vector<OutputRun> output_;
  std::size_t output_bytes_ = 0;
  std::size_t output_limit_ = 0;
  std::int32_t owner_ = Provenance::kNoMessage;
  bool anonymous_iteration_ =
      false;  ///< in a loop over something other than messages: the first message set is its owner
  int generation_ = 0;
  TextBuilder builder_;
};

/// A running for loop, as `loop` shows it.
struct LoopState {
  std::span<const Value> source;
  std::size_t next = 0;  ///< of source
  const Stmt* stmt = nullptr;
  bool filtered = false;        ///< items must still pass stmt->filter
  std::size_t outer_frame = 0;  ///< in which the filter is evaluated
  bool has_after = false;       ///< `after` was taken from the source already
  Value after;
  Value current;
  Value before;
  bool has_before = false;
  std::int64_t index0 = -1;
  int depth = 1;
  bool has_changed = false;  ///< loop.changed() was called
  Value changed;             ///< what it was called with last
};

}  // namespace draftmill::jinja

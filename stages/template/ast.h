// The parsed form of a chat template. Nodes live in the Template and are immutable once parsed; pointers between them
// do not own.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stages/template/value.h"

namespace draftmill::jinja {

enum class ExprKind : std::uint8_t {
  kConstant,   ///< constant
  kText,       ///< constant: a text literal
  kName,       ///< name
  kAttribute,  ///< a.text
  kSubscript,  ///< a[b]
  kSlice,      ///< a[b:c:d]
  kCall,       ///< a(items, keywords)
  kFilter,     ///< a | text(items, keywords); a is null at the start of a filter block
  kTest,       ///< a is text(items)
  kNot,
  kNegate,
  kPlus,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,   ///< items joined with ~
  kCompare,  ///< a, then comparisons
  kAnd,
  kOr,
  kConditional,  ///< b if a else c; c may be null
  kList,
  kTuple,
  kDict,  ///< items: key, value, key, value
};

enum class CompareOperator : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Comparison {
  CompareOperator op;
  const Expr* operand;
};

struct Keyword {
  std::string name;
  const Expr* value;
};

/// Number of a name within one template: variables are looked up by it.
using NameId = std::uint32_t;
inline constexpr NameId kNoName = ~NameId{0};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  std::uint8_t function = 0;  ///< FilterId, TestId or MethodId; 0 where there is none of ours
  int line = 0;
  int depth = 1;  ///< one more than the deepest operand
  NameId name = kNoName;
  Value constant;
  std::string text;
  const Expr* a = nullptr;
  const Expr* b = nullptr;  ///< of calls, filters and tests: what * unpacks into further arguments
  const Expr* c = nullptr;  ///< of calls, filters and tests: what ** unpacks into named ones
  const Expr* d = nullptr;
  std::vector<const Expr*> items;
  std::vector<Keyword> keywords;
  std::vector<Comparison> comparisons;
};

/// What an assignment or a loop binds: one name, a tuple of targets, or an attribute of a namespace.
struct Target {
  NameId name = kNoName;
  std::string attribute;      ///< not empty: name.attribute
  std::vector<Target> items;  ///< not empty: unpacking
};

struct Stmt;
using Body = std::vector<const Stmt*>;

enum class StmtKind : std::uint8_t {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kFilterBlock,
  kGeneration,
  kCallBlock,
  kWith,
  kBreak,
  kContinue
};

struct Branch {
  const Expr* condition;  ///< null for else
  Body body;
};

struct Parameter {
  NameId name;
  std::string text;
  const Expr* fallback;  ///< null where there is no default
};

struct Assignment {
  Target target;
  const Expr* value;
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 0;
  Value data;                           ///< kData
  const Expr* expr = nullptr;           ///< output, iterable, value, filter chain of a block
  const Expr* filter = nullptr;         ///< kFor: the condition after `if`
  Target target;                        ///< kFor, kSet, kSetBlock
  Body body;                            ///< kFor, kSetBlock, kMacro, kFilterBlock, kGeneration, kCallBlock, kWith
  Body otherwise;                       ///< kFor: else
  std::vector<Branch> branches;         ///< kIf
  NameId name = kNoName;                ///< kMacro
  std::string text;                     ///< kMacro: the name
  std::vector<Parameter> parameters;    ///< kMacro, kCallBlock
  std::vector<Assignment> assignments;  ///< kWith
  bool recursive = false;               ///< kFor
  /// kMacro, kCallBlock: the names under which the body sees what goes beyond the parameters, where it mentions them.
  NameId varargs = kNoName;
  NameId kwargs = kNoName;
  NameId caller = kNoName;
};

/// A whole parsed template, owner of all nodes.
struct ParsedTemplate {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<std::string> strings;  ///< bytes of text constants
  std::deque<TextRep> texts;
  Body body;
  std::vector<std::string> names;  ///< by NameId
  std::unordered_map<std::string, NameId> name_ids;
  bool has_generation = false;
  NameId loop_name = kNoName;  ///< of `loop`, where the template mentions it

  NameId Intern(std::string_view name) {
    const auto [place, added] = name_ids.try_emplace(std::string(name), static_cast<NameId>(names.size()));
    if (added) names.emplace_back(name);
    return place->second;
  }
};

}  // namespace draftmill::jinja

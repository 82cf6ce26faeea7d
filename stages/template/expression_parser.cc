#include "stages/template/expression_parser.h"

#include <array>
#include <charconv>
#include <string>

#include "stages/template/builtins.h"

namespace draftmill::jinja {

const Expr* ExpressionParser::ParseTuple(bool with_conditional, std::initializer_list<std::string_view> ends,
                                         bool in_brackets) {
  const int line = Peek().line;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (!failed()) {
    if (!items.empty()) {
      if (!TakeOperator(",")) break;
      is_tuple = true;
    }
    if (AtTupleEnd(ends)) break;
    items.push_back(with_conditional ? ParseConditional() : ParseOr());
    if (!AtOperator(",")) break;
  }
  if (!is_tuple && items.size() == 1) return items.front();
  if (items.empty() && !in_brackets) FailUnexpected("expected an expression");
  Expr* tuple = New(ExprKind::kTuple, line);
  tuple->items = std::move(items);
  return Done(tuple);
}

bool ExpressionParser::AtTupleEnd(std::initializer_list<std::string_view> ends) const {
  const TokenType type = Peek().type;
  if (type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || AtOperator(")")) return true;
  return std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return AtName(end); });
}

const Expr* ExpressionParser::ParseConditional() {
  const Nesting nesting(*this);
  if (failed()) return nullptr;
  const int line = Peek().line;
  const Status unknown_before = unknown_;
  const Expr* expr = ParseOr();
  while (!failed() && TakeName("if")) {
    Expr* conditional = New(ExprKind::kConditional, line);
    conditional->b = expr;
    conditional->a = ParseOr();
    if (TakeName("else")) conditional->c = ParseConditional();
    expr = Done(conditional);
    unknown_ = unknown_before;
  }
  return expr;
}

const Expr* ExpressionParser::ParseOr() {
  const Expr* left = ParseAnd();
  while (!failed() && AtName("or")) {
    const int line = Peek().line;
    Skip();
    left = Binary(ExprKind::kOr, line, left, ParseAnd());
  }
  return left;
}

const Expr* ExpressionParser::ParseAnd() {
  const Expr* left = ParseNot();
  while (!failed() && AtName("and")) {
    const int line = Peek().line;
    Skip();
    left = Binary(ExprKind::kAnd, line, left, ParseNot());
  }
  return left;
}

const Expr* ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nesting nesting(*this);
  if (failed()) return nullptr;
  const int line = Peek().line;
  Skip();
  return Unary(ExprKind::kNot, line, ParseNot());
}

bool ExpressionParser::TakeComparison(CompareOperator& op) {
  static constexpr std::array kOperators =
      std::to_array<std::pair<std::string_view, CompareOperator>>({{"==", CompareOperator::kEqual},
                                                                   {"!=", CompareOperator::kNotEqual},
                                                                   {"<=", CompareOperator::kLessEqual},
                                                                   {">=", CompareOperator::kGreaterEqual},
                                                                   {"<", CompareOperator::kLess},
                                                                   {">", CompareOperator::kGreater}});
  for (const auto& [text, candidate] : kOperators) {
    if (TakeOperator(text)) return op = candidate, true;
  }
  if (TakeName("in")) return op = CompareOperator::kIn, true;
  if (AtName("not") && Peek(1).type == TokenType::kName && Peek(1).text == "in") {
    Skip();
    Skip();
    return op = CompareOperator::kNotIn, true;
  }
  return false;
}

const Expr* ExpressionParser::ParseCompare() {
  const int line = Peek().line;
  const Expr* first = ParseSum();
  std::vector<Comparison> comparisons;
  CompareOperator op{};
  while (!failed() && TakeComparison(op)) comparisons.push_back({op, ParseSum()});
  if (comparisons.empty()) return first;
  Expr* compare = New(ExprKind::kCompare, line);
  compare->a = first;
  compare->comparisons = std::move(comparisons);
  return Done(compare);
}

const Expr* ExpressionParser::ParseSum() {
  const Expr* left = ParseConcat();
  while (!failed() && (AtOperator("+") || AtOperator("-"))) {
    const int line = Peek().line;
    const ExprKind kind = AtOperator("+") ? ExprKind::kAdd : ExprKind::kSubtract;
    Skip();
    left = Binary(kind, line, left, ParseConcat());
  }
  return left;
}

const Expr* ExpressionParser::ParseConcat() {
  const int line = Peek().line;
  const Expr* first = ParseProduct();
  if (failed() || !AtOperator("~")) return first;
  Expr* concat = New(ExprKind::kConcat, line);
  concat->items.push_back(first);
  while (!failed() && TakeOperator("~")) concat->items.push_back(ParseProduct());
  return Done(concat);
}

const Expr* ExpressionParser::ParseProduct() {
  const Expr* left = ParsePower();
  while (!failed() && Peek().type == TokenType::kOperator) {
    const int line = Peek().line;
    ExprKind kind{};
    if (AtOperator("*"))
      kind = ExprKind::kMultiply;
    else if (AtOperator("/"))
      kind = ExprKind::kDivide;
    else if (AtOperator("//"))
      kind = ExprKind::kFloorDivide;
    else if (AtOperator("%"))
      kind = ExprKind::kModulo;
    else
      break;
    Skip();
    left = Binary(kind, line, left, ParsePower());
  }
  return left;
}

const Expr* ExpressionParser::ParsePower() {
  const Expr* left = ParseUnary(true);
  while (!failed() && AtOperator("**")) {
    const int line = Peek().line;
    Skip();
    left = Binary(ExprKind::kPower, line, left, ParseUnary(true));
  }
  return left;
}

const Expr* ExpressionParser::ParseUnary(bool with_filter) {
  const int line = Peek().line;
  const Expr* expr = nullptr;
  if (AtOperator("-") || AtOperator("+")) {
    const Nesting nesting(*this);
    if (failed()) return nullptr;
    const ExprKind kind = AtOperator("-") ? ExprKind::kNegate : ExprKind::kPlus;
    Skip();
    expr = Unary(kind, line, ParseUnary(false));
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(expr);
  return with_filter ? ParseFilters(expr, false) : expr;
}

const Expr* ExpressionParser::ParsePrimary() {
  const Token& token = Peek();
  const int line = token.line;
  switch (token.type) {
    case TokenType::kName: return ParseNameOrConstant();
    case TokenType::kString: return ParseStrings();
    case TokenType::kInteger: return ParseInteger();
    case TokenType::kFloat: {
      Skip();
      double number = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
      return Constant(line, Value::Float(number));
    }
    case TokenType::kOperator: break;
    default: return FailUnexpected("expected an expression"), nullptr;
  }
  const Nesting nesting(*this);
  if (failed()) return nullptr;
  if (TakeOperator("(")) {
    const Expr* inside = ParseTuple(true, {}, true);
    ExpectOperator(")");
    return inside;
  }
  if (TakeOperator("[")) return ParseListItems(line);
  if (TakeOperator("{")) return ParseDictItems(line);
  return FailUnexpected("expected an expression"), nullptr;
}

const Expr* ExpressionParser::ParseNameOrConstant() {
  const int line = Peek().line;
  const std::string name = ExpectName();
  if (name == "true" || name == "True") return Constant(line, Value::Bool(true));
  if (name == "false" || name == "False") return Constant(line, Value::Bool(false));
  if (name == "none" || name == "None") return Constant(line, Value::None());
  Expr* expr = New(ExprKind::kName, line);
  expr->name = out_->Intern(name);
  if (name == "varargs") NoteSpecialName(expr->name, &Stmt::varargs);
  if (name == "kwargs") NoteSpecialName(expr->name, &Stmt::kwargs);
  if (name == "caller") NoteSpecialName(expr->name, &Stmt::caller);
  expr->text = name;
  return expr;
}

/// A macro takes further arguments where it, or a macro inside it, mentions their name and has no parameter of that name.
void ExpressionParser::NoteSpecialName(NameId name, NameId Stmt::*place) {
  for (Stmt* macro : macros_) {
    const bool is_parameter = std::any_of(macro->parameters.begin(), macro->parameters.end(),
                                          [name](const Parameter& parameter) { return parameter.name == name; });
    if (!is_parameter) macro->*place = name;
  }
}

const Expr* ExpressionParser::ParseStrings() {
  const int line = Peek().line;
  std::string text;
  for (; Peek().type == TokenType::kString; Skip()) text += Peek().text;
  return TextConstant(line, std::move(text));
}

const Expr* ExpressionParser::ParseInteger() {
  const Token& token = Peek();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
  if (error != std::errc() || end != token.text.data() + token.text.size()) {
    Refuse(token.line, "an integer of more than 64 bits");
  }
  Skip();
  return Constant(token.line, Value::Integer(number));
}

const Expr* ExpressionParser::ParseListItems(int line) {
  Expr* list = New(ExprKind::kList, line);
  while (!failed() && !AtOperator("]")) {
    if (!list->items.empty()) ExpectOperator(",");
    if (AtOperator("]")) break;
    list->items.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return Done(list);
}

const Expr* ExpressionParser::ParseDictItems(int line) {
  Expr* dict = New(ExprKind::kDict, line);
  while (!failed() && !AtOperator("}")) {
    if (!dict->items.empty()) ExpectOperator(",");
    if (AtOperator("}")) break;
    dict->items.push_back(ParseExpression());
    ExpectOperator(":");
    dict->items.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return Done(dict);
}

const Expr* ExpressionParser::ParsePostfix(const Expr* expr) {
  while (!failed()) {
    if (AtOperator("."))
      expr = ParseAttribute(expr);
    else if (AtOperator("["))
      expr = ParseSubscript(expr);
    else if (AtOperator("("))
      expr = ParseCall(expr);
    else
      break;
  }
  return expr;
}

const Expr* ExpressionParser::ParseAttribute(const Expr* object) {
  const int line = Peek().line;
  Skip();
  if (Peek().type == TokenType::kInteger) return Binary(ExprKind::kSubscript, line, object, ParseInteger());
  Expr* expr = New(ExprKind::kAttribute, line);
  expr->a = object;
  expr->text = ExpectName();
  expr->function = static_cast<std::uint8_t>(FindMethod(expr->text));
  expr->constant = NewText(expr->text);
  return Done(expr);
}

const Expr* ExpressionParser::ParseSubscript(const Expr* object) {
  const Nesting nesting(*this);
  if (failed()) return nullptr;
  const int line = Peek().line;
  Skip();
  const Expr* result = ParseSubscriptItem(object, line);
  if (AtOperator(",")) Refuse(line, "a subscript of several items");
  ExpectOperator("]");
  return result;
}

const Expr* ExpressionParser::ParseSubscriptItem(const Expr* object, int line) {
  const Expr* bounds[3] = {nullptr, nullptr, nullptr};
  int colons = 0;
  while (!failed() && colons < 3) {
    if (!AtOperator(":") && !AtOperator("]") && !AtOperator(",")) bounds[colons] = ParseExpression();
    if (colons == 2 || !TakeOperator(":")) break;
    ++colons;
  }
  if (colons == 0) {
    if (bounds[0] == nullptr) FailUnexpected("expected a subscript");
    Expr* expr = New(ExprKind::kSubscript, line);
    expr->a = object;
    expr->b = bounds[0];
    if (bounds[0] != nullptr && bounds[0]->kind == ExprKind::kText) {
      expr->text = std::string(bounds[0]->constant.text()->data, bounds[0]->constant.text()->size);
      expr->function = static_cast<std::uint8_t>(FindMethod(expr->text));
    }
    return Done(expr);
  }
  Expr* expr = New(ExprKind::kSlice, line);
  expr->a = object;
  expr->b = bounds[0];
  expr->c = bounds[1];
  expr->d = bounds[2];
  return Done(expr);
}

void ExpressionParser::ParseArguments(Expr* call) {
  const Nesting nesting(*this);
  ExpectOperator("(");
  bool first = true;
  while (!failed() && !AtOperator(")")) {
    if (!first) ExpectOperator(",");
    first = false;
    if (AtOperator(")")) break;
    if (call->c != nullptr) Fail(Peek().line, "invalid syntax for function call expression");
    if (AtOperator("**")) {
      Skip();
      call->c = ParseExpression();
    } else if (AtOperator("*")) {
      if (call->b != nullptr) Fail(Peek().line, "invalid syntax for function call expression");
      Skip();
      call->b = ParseExpression();
    } else if (Peek().type == TokenType::kName && Peek(1).type == TokenType::kOperator && Peek(1).text == "=") {
      std::string name = ExpectName();
      Skip();
      call->keywords.push_back({std::move(name), ParseExpression()});
    } else {
      if (!call->keywords.empty() || call->b != nullptr) {
        Fail(Peek().line, "invalid syntax for function call expression");
      }
      call->items.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
}

const Expr* ExpressionParser::ParseCall(const Expr* callee) {
  Expr* call = New(ExprKind::kCall, Peek().line);
  call->a = callee;
  ParseArguments(call);
  if (!failed() && callee->kind == ExprKind::kAttribute && callee->function == 0) {
    Refuse(callee->line, "the method ." + callee->text + "()");
  }
  if (!failed() && callee->kind == ExprKind::kName) RefuseFunction(*callee);
  return Done(call);
}

void ExpressionParser::RefuseFunction(const Expr& callee) {
  for (const std::string_view name : {"lipsum", "cycler", "joiner", "super", "self"}) {
    if (callee.text == name) Refuse(callee.line, "the function " + callee.text + "()");
  }
}

const Expr* ExpressionParser::ParseFilters(const Expr* expr, bool inline_start) {
  while (!failed()) {
    if (inline_start || AtOperator("|")) {
      if (!inline_start) Skip();
      inline_start = false;
      expr = ParseFilter(expr);
    } else if (expr != nullptr && AtName("is")) {
      expr = ParseTest(expr);
    } else if (expr != nullptr && AtOperator("(")) {
      expr = ParseCall(expr);
    } else {
      break;
    }
  }
  return expr;
}

const Expr* ExpressionParser::ParseFilter(const Expr* input) {
  const int line = Peek().line;
  Expr* filter = New(ExprKind::kFilter, line);
  filter->a = input;
  filter->text = ExpectName();
  filter->function = static_cast<std::uint8_t>(FindFilter(filter->text));
  if (AtOperator(".")) Refuse(line, "a filter name with a dot");
  if (filter->function == 0) RefuseOrDefer("filter", filter->text, JinjaHasFilter(filter->text), line);
  if (AtOperator("(")) ParseArguments(filter);
  return Done(filter);
}

void ExpressionParser::RefuseOrDefer(const std::string& what, const std::string& name, bool known, int line) {
  if (known) return Refuse(line, "the " + what + " '" + name + "'");
  if (conditional_ > 0 || !unknown_.ok()) return;
  unknown_ = InvalidInput("template line " + std::to_string(line) + ": No " + what + " named '" + name + "'.");
}

const Expr* ExpressionParser::ParseTest(const Expr* input) {
  const int line = Peek().line;
  Skip();  // is
  const bool negated = TakeName("not");
  Expr* test = New(ExprKind::kTest, line);
  test->a = input;
  test->text = ExpectName();
  test->function = static_cast<std::uint8_t>(FindTest(test->text));
  if (test->function == 0) RefuseOrDefer("test", test->text, JinjaHasTest(test->text), line);
  if (AtOperator("(")) {
    ParseArguments(test);
    if (!test->keywords.empty() || test->c != nullptr) Refuse(line, "a keyword argument of a test");
  } else if (AtTestArgument()) {
    if (AtName("is")) Fail(line, "You cannot chain multiple tests with is");
    test->items.push_back(ParsePostfix(ParsePrimary()));
  }
  const Expr* done = Done(test);
  return negated ? Unary(ExprKind::kNot, line, done) : done;
}

bool ExpressionParser::AtTestArgument() const {
  const TokenType type = Peek().type;
  if (type == TokenType::kName) return !AtName("else") && !AtName("or") && !AtName("and");
  if (type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat) return true;
  return AtOperator("(") || AtOperator("[") || AtOperator("{");
}

}  // namespace draftmill::jinja

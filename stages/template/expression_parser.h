// The part of the template parser that reads expressions, from the loosest binding down: conditional, or, and, not,
// comparison, sum, ~, product, sign, primary with what follows it, filters and tests. Internal to parser.cc, which adds
// the statements.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "stages/template/ast.h"
#include "stages/template/parser_base.h"

namespace draftmill::jinja {

class ExpressionParser : protected ParserBase {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : ParserBase(std::move(tokens)) {}

  const Expr* ParseExpression() { return ParseConditional(); }
  /// A tuple without brackets, or one expression.
  const Expr* ParseTuple(bool with_conditional, std::initializer_list<std::string_view> ends, bool in_brackets = false);
  /// Filters, tests and calls after an expression; with `inline_start` the first filter has no '|' before it.
  const Expr* ParseFilters(const Expr* expr, bool inline_start);

  int conditional_ = 0;  ///< {% if %} around, up to the nearest scope
  /// The first filter or test that jinja2 would miss when it compiles the template, which it does once all is parsed.
  Status unknown_;
  std::vector<Stmt*> macros_;  ///< macros and call blocks around

 private:
  bool AtTupleEnd(std::initializer_list<std::string_view> ends) const;
  void NoteSpecialName(NameId name, NameId Stmt::*place);
  const Expr* ParseConditional();
  const Expr* ParseOr();
  const Expr* ParseAnd();
  const Expr* ParseNot();
  bool TakeComparison(CompareOperator& op);
  const Expr* ParseCompare();
  const Expr* ParseSum();
  const Expr* ParseConcat();
  const Expr* ParseProduct();
  const Expr* ParsePower();
  const Expr* ParseUnary(bool with_filter);
  const Expr* ParsePrimary();
  const Expr* ParseNameOrConstant();
  const Expr* ParseStrings();
  const Expr* ParseInteger();
  const Expr* ParseListItems(int line);
  const Expr* ParseDictItems(int line);
  const Expr* ParsePostfix(const Expr* expr);
  const Expr* ParseAttribute(const Expr* object);
  const Expr* ParseSubscript(const Expr* object);
  const Expr* ParseSubscriptItem(const Expr* object, int line);
  void ParseArguments(Expr* call);
  const Expr* ParseCall(const Expr* callee);
  void RefuseFunction(const Expr& callee);
  const Expr* ParseFilter(const Expr* input);
  /// A filter or test that jinja2 has and the engine lacks is refused. One that jinja2 lacks too is refused as jinja2
  /// does it: inside {% if %} and inside a conditional expression only when it is reached.
  void RefuseOrDefer(const std::string& what, const std::string& name, bool known, int line);
  const Expr* ParseTest(const Expr* input);
  bool AtTestArgument() const;
};

}  // namespace draftmill::jinja

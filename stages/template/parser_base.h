// What the parsers of statements and expressions stand on: tokens, failures, nodes. Internal to parser.cc and
// expression_parser.cc.
//
// After a failure a parser goes on with empty nodes until the nearest loop over tokens sees failed(): no function needs
// an error path of its own in the middle of an expression. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "stages/template/ast.h"
#include "stages/template/lexer.h"
#include "stages/template/parser.h"

namespace draftmill::jinja {

class ParserBase {
 protected:
  explicit ParserBase(std::vector<Token> tokens)
      : out_(std::make_unique<ParsedTemplate>()), tokens_(std::move(tokens)) {}

  // ---- tokens -----------------------------------------------------------------------------------------------------

  const Token& Peek(std::size_t ahead = 0) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  void Skip() {
    if (next_ + 1 < tokens_.size()) ++next_;
  }
  bool AtName(std::string_view name) const { return Peek().type == TokenType::kName && Peek().text == name; }
  bool AtOperator(std::string_view op) const { return Peek().type == TokenType::kOperator && Peek().text == op; }
  bool TakeName(std::string_view name) {
    if (!AtName(name)) return false;
    Skip();
    return true;
  }
  bool TakeOperator(std::string_view op) {
    if (!AtOperator(op)) return false;
    Skip();
    return true;
  }
  void ExpectOperator(std::string_view op) {
    if (!TakeOperator(op)) FailUnexpected("expected '" + std::string(op) + "'");
  }
  void Expect(TokenType type, std::string_view what) {
    if (Peek().type != type) return FailUnexpected("expected " + std::string(what));
    Skip();
  }
  std::string ExpectName() {
    if (Peek().type != TokenType::kName) {
      FailUnexpected("expected a name");
      return {};
    }
    std::string name = Peek().text;
    Skip();
    return name;
  }

  // ---- failures ---------------------------------------------------------------------------------------------------

  bool failed() const { return !failure_.ok(); }
  void Fail(int line, const std::string& message) {
    if (!failed()) failure_ = InvalidInput("template line " + std::to_string(line) + ": " + message);
  }
  void Refuse(int line, const std::string& what) {
    if (!failed()) failure_ = Unsupported("template line " + std::to_string(line) + ": " + what + " is not supported");
  }
  void FailUnexpected(const std::string& expected = "") {
    std::string message;
    if (Peek().type == TokenType::kEnd) {
      message = "the template ends too early";
      if (!open_.empty()) message += ": {% " + open_.back() + " %} is not closed";
    } else {
      const bool has_text = !Peek().text.empty() && Peek().type != TokenType::kData;
      message = has_text ? "unexpected '" + Peek().text + "'" : std::string("unexpected end of tag");
    }
    if (!expected.empty()) message += ", " + expected;
    Fail(Peek().line, message);
  }

  /// Counts nested statements and brackets.
  class Nesting {
   public:
    explicit Nesting(ParserBase& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaximumNesting) {
        parser_.Fail(parser_.Peek().line, "nested deeper than " + std::to_string(kMaximumNesting) + " levels");
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ParserBase& parser_;
  };

  // ---- nodes ------------------------------------------------------------------------------------------------------

  Expr* New(ExprKind kind, int line) {
    Expr& expr = out_->exprs.emplace_back();
    expr.kind = kind;
    expr.line = line;
    return &expr;
  }

  /// Sets the depth of a finished node from its operands.
  const Expr* Done(Expr* expr) {
    int deepest = 0;
    const auto look = [&deepest](const Expr* child) {
      if (child != nullptr) deepest = std::max(deepest, child->depth);
    };
    for (const Expr* child : {expr->a, expr->b, expr->c, expr->d}) look(child);
    for (const Expr* child : expr->items) look(child);
    for (const Keyword& keyword : expr->keywords) look(keyword.value);
    for (const Comparison& comparison : expr->comparisons) look(comparison.operand);
    expr->depth = deepest + 1;
    if (expr->depth > kMaximumExpressionDepth) {
      Fail(expr->line, "an expression is deeper than " + std::to_string(kMaximumExpressionDepth) + " operations");
    }
    return expr;
  }

  const Expr* Unary(ExprKind kind, int line, const Expr* a) {
    Expr* expr = New(kind, line);
    expr->a = a;
    return Done(expr);
  }
  const Expr* Binary(ExprKind kind, int line, const Expr* a, const Expr* b) {
    Expr* expr = New(kind, line);
    expr->a = a;
    expr->b = b;
    return Done(expr);
  }
  const Expr* Constant(int line, Value value) {
    Expr* expr = New(ExprKind::kConstant, line);
    expr->constant = value;
    return expr;
  }
  Value NewText(std::string text) {
    const std::string& bytes = out_->strings.emplace_back(std::move(text));
    TextRep& rep = out_->texts.emplace_back();
    rep.data = bytes.data();
    rep.size = static_cast<std::uint32_t>(bytes.size());
    return Value::Text(&rep, Provenance());
  }
  const Expr* TextConstant(int line, std::string text) {
    Expr* expr = New(ExprKind::kText, line);
    expr->constant = NewText(std::move(text));
    return expr;
  }

  std::unique_ptr<ParsedTemplate> out_;
  Status failure_;
  std::vector<std::string> open_;  ///< names of the tags that are open

 private:
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
};

}  // namespace draftmill::jinja

#include "stages/template/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "stages/template/builtins.h"
#include "stages/template/lexer.h"

namespace draftmill::jinja {
namespace {

constexpr std::array kRefusedStatements =
    std::to_array<std::string_view>({"extends", "block", "include", "from", "import", "with", "autoescape", "call",
                                     "trans", "do", "debug", "pluralize"});

/// After a failure the parser goes on with empty nodes until the nearest loop over tokens sees failed(): no function
/// needs an error path of its own in the middle of an expression.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), out_(std::make_unique<ParsedTemplate>()) {}

  Result<std::unique_ptr<const ParsedTemplate>> Run() {
    out_->body = ParseBody({});
    if (!failed() && Peek().type != TokenType::kEnd) FailUnexpected();
    if (failed()) return failure_;
    if (const auto loop = out_->name_ids.find("loop"); loop != out_->name_ids.end()) out_->loop_name = loop->second;
    return std::unique_ptr<const ParsedTemplate>(std::move(out_));
  }

 private:
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
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaximumNesting) {
        parser_.Fail(parser_.Peek().line, "nested deeper than " + std::to_string(kMaximumNesting) + " levels");
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
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
  Stmt* NewStmt(StmtKind kind, int line) {
    Stmt& stmt = out_->stmts.emplace_back();
    stmt.kind = kind;
    stmt.line = line;
    return &stmt;
  }

  // ---- statements -------------------------------------------------------------------------------------------------

  /// Statements up to a tag that begins with one of `ends`; that name is the next token then. Without ends: to the end.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Body body;
    while (!failed()) {
      const Token& token = Peek();
      if (token.type == TokenType::kEnd) {
        if (ends.size() != 0) FailUnexpected();
        break;
      }
      if (token.type == TokenType::kData) {
        Stmt* stmt = NewStmt(StmtKind::kData, token.line);
        stmt->data = NewText(token.text);
        body.push_back(stmt);
        Skip();
      } else if (token.type == TokenType::kVariableBegin) {
        Stmt* stmt = NewStmt(StmtKind::kOutput, token.line);
        Skip();
        stmt->expr = ParseTuple(true, {});
        Expect(TokenType::kVariableEnd, "end of print statement");
        body.push_back(stmt);
      } else {
        Expect(TokenType::kBlockBegin, "a tag");
        if (std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return AtName(end); })) break;
        ParseStatement(body);
      }
    }
    return body;
  }

  void EndTag() { Expect(TokenType::kBlockEnd, "end of statement block"); }

  void ParseStatement(Body& body) {
    const int line = Peek().line;
    const std::string name = ExpectName();
    if (failed()) return;
    open_.push_back(name);
    if (name == "if")
      body.push_back(ParseIf(line));
    else if (name == "for")
      body.push_back(ParseFor(line));
    else if (name == "set")
      body.push_back(ParseSet(line));
    else if (name == "macro")
      body.push_back(ParseMacro(line));
    else if (name == "filter")
      body.push_back(ParseFilterBlock(line));
    else if (name == "generation")
      body.push_back(ParseGeneration(line));
    else if (name == "break" || name == "continue")
      body.push_back(ParseLoopControl(name, line));
    else if (name == "print")
      Refuse(line, "{% print %}");
    else
      FailUnknownTag(name, line);
    open_.pop_back();
    EndTag();
  }

  void FailUnknownTag(const std::string& name, int line) {
    if (std::find(kRefusedStatements.begin(), kRefusedStatements.end(), name) != kRefusedStatements.end()) {
      Refuse(line, "{% " + name + " %}");
    } else {
      Fail(line, "unknown tag '" + name + "'");
    }
  }

  const Stmt* ParseIf(int line) {
    Stmt* stmt = NewStmt(StmtKind::kIf, line);
    ++conditional_;
    while (!failed()) {
      const Expr* condition = ParseTuple(false, {});
      EndTag();
      stmt->branches.push_back({condition, ParseBody({"elif", "else", "endif"})});
      if (TakeName("elif")) continue;
      if (TakeName("else")) {
        EndTag();
        stmt->branches.push_back({nullptr, ParseBody({"endif"})});
      }
      break;
    }
    --conditional_;
    Skip();  // endif
    return stmt;
  }

  const Stmt* ParseFor(int line) {
    Stmt* stmt = NewStmt(StmtKind::kFor, line);
    stmt->target = ParseTarget(true);
    if (stmt->target.attribute.empty() && stmt->target.name != kNoName && out_->names[stmt->target.name] == "loop") {
      Fail(line, "can't assign to special loop variable in for-loop target");
    }
    if (!TakeName("in")) FailUnexpected("expected 'in'");
    stmt->expr = ParseTuple(false, {"recursive"});
    if (TakeName("if")) stmt->filter = ParseExpression();
    if (AtName("recursive")) Refuse(line, "{% for ... recursive %}");
    EndTag();
    const int conditional = std::exchange(conditional_, 0);
    const int loops = loops_++;
    stmt->body = ParseBody({"endfor", "else"});
    loops_ = loops;
    if (TakeName("else")) {
      EndTag();
      stmt->otherwise = ParseBody({"endfor"});
    }
    conditional_ = conditional;
    Skip();  // endfor
    return stmt;
  }

  const Stmt* ParseSet(int line) {
    Stmt* stmt = NewStmt(StmtKind::kSet, line);
    stmt->target = ParseTarget(false);
    if (TakeOperator("=")) {
      stmt->expr = ParseTuple(true, {});
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (!stmt->target.items.empty()) FailUnexpected("expected '='");
    if (AtOperator("|")) stmt->expr = ParseFilters(nullptr, false);
    EndTag();
    stmt->body = ParseScopedBody({"endset"});
    Skip();
    return stmt;
  }

  /// A body in which break and continue have no loop to act on.
  Body ParseScopedBody(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loops_, 0);
    const int conditional = std::exchange(conditional_, 0);
    Body body = ParseBody(ends);
    loops_ = loops;
    conditional_ = conditional;
    return body;
  }

  const Stmt* ParseMacro(int line) {
    Stmt* stmt = NewStmt(StmtKind::kMacro, line);
    stmt->text = ExpectName();
    stmt->name = out_->Intern(stmt->text);
    ExpectOperator("(");
    while (!failed() && !AtOperator(")")) {
      if (!stmt->parameters.empty()) ExpectOperator(",");
      Parameter parameter{kNoName, ExpectName(), nullptr};
      parameter.name = out_->Intern(parameter.text);
      if (TakeOperator("="))
        parameter.fallback = ParseExpression();
      else if (!stmt->parameters.empty() && stmt->parameters.back().fallback != nullptr) {
        Fail(line, "non-default argument follows default argument");
      }
      stmt->parameters.push_back(std::move(parameter));
    }
    ExpectOperator(")");
    EndTag();
    const bool outer = std::exchange(in_macro_, true);
    stmt->body = ParseScopedBody({"endmacro"});
    in_macro_ = outer;
    Skip();
    return stmt;
  }

  const Stmt* ParseFilterBlock(int line) {
    Stmt* stmt = NewStmt(StmtKind::kFilterBlock, line);
    stmt->expr = ParseFilters(nullptr, true);
    EndTag();
    stmt->body = ParseScopedBody({"endfilter"});
    Skip();
    return stmt;
  }

  const Stmt* ParseGeneration(int line) {
    Stmt* stmt = NewStmt(StmtKind::kGeneration, line);
    out_->has_generation = true;
    EndTag();
    stmt->body = ParseScopedBody({"endgeneration"});
    Skip();
    return stmt;
  }

  const Stmt* ParseLoopControl(const std::string& name, int line) {
    if (loops_ == 0) Fail(line, "'" + name + "' outside loop");
    return NewStmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, line);
  }

  Target ParseTarget(bool stop_at_in) {
    Target target;
    std::vector<Target> items;
    bool is_tuple = false;
    while (!failed()) {
      if (TakeOperator("(")) {
        const Nesting nesting(*this);
        items.push_back(ParseTarget(false));
        ExpectOperator(")");
      } else {
        items.push_back(ParseSingleTarget(!stop_at_in));
      }
      if (!TakeOperator(",")) break;
      is_tuple = true;
      if (AtName("in") || AtOperator("=") || AtOperator(")")) break;
    }
    if (!is_tuple && items.size() == 1) return std::move(items.front());
    target.items = std::move(items);
    return target;
  }

  Target ParseSingleTarget(bool with_namespace) {
    Target target;
    const int line = Peek().line;
    const std::string name = ExpectName();
    if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None") {
      Fail(line, "can't assign to '" + name + "'");
    }
    target.name = out_->Intern(name);
    if (with_namespace && TakeOperator(".")) target.attribute = ExpectName();
    return target;
  }

  // ---- expressions, from the loosest binding down -----------------------------------------------------------------

  const Expr* ParseExpression() { return ParseConditional(); }

  /// A tuple without brackets, or one expression.
  const Expr* ParseTuple(bool with_conditional, std::initializer_list<std::string_view> ends,
                         bool in_brackets = false) {
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

  bool AtTupleEnd(std::initializer_list<std::string_view> ends) const {
    const TokenType type = Peek().type;
    if (type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || AtOperator(")")) return true;
    return std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return AtName(end); });
  }

  const Expr* ParseConditional() {
    const Nesting nesting(*this);
    if (failed()) return nullptr;
    const int line = Peek().line;
    const Expr* expr = ParseOr();
    while (!failed() && TakeName("if")) {
      Expr* conditional = New(ExprKind::kConditional, line);
      conditional->b = expr;
      conditional->a = ParseOr();
      if (TakeName("else")) conditional->c = ParseConditional();
      expr = Done(conditional);
    }
    return expr;
  }

  const Expr* ParseOr() {
    const Expr* left = ParseAnd();
    while (!failed() && AtName("or")) {
      const int line = Peek().line;
      Skip();
      left = Binary(ExprKind::kOr, line, left, ParseAnd());
    }
    return left;
  }

  const Expr* ParseAnd() {
    const Expr* left = ParseNot();
    while (!failed() && AtName("and")) {
      const int line = Peek().line;
      Skip();
      left = Binary(ExprKind::kAnd, line, left, ParseNot());
    }
    return left;
  }

  const Expr* ParseNot() {
    if (!AtName("not")) return ParseCompare();
    const Nesting nesting(*this);
    if (failed()) return nullptr;
    const int line = Peek().line;
    Skip();
    return Unary(ExprKind::kNot, line, ParseNot());
  }

  bool TakeComparison(CompareOperator& op) {
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

  const Expr* ParseCompare() {
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

  const Expr* ParseSum() {
    const Expr* left = ParseConcat();
    while (!failed() && (AtOperator("+") || AtOperator("-"))) {
      const int line = Peek().line;
      const ExprKind kind = AtOperator("+") ? ExprKind::kAdd : ExprKind::kSubtract;
      Skip();
      left = Binary(kind, line, left, ParseConcat());
    }
    return left;
  }

  const Expr* ParseConcat() {
    const int line = Peek().line;
    const Expr* first = ParseProduct();
    if (failed() || !AtOperator("~")) return first;
    Expr* concat = New(ExprKind::kConcat, line);
    concat->items.push_back(first);
    while (!failed() && TakeOperator("~")) concat->items.push_back(ParseProduct());
    return Done(concat);
  }

  const Expr* ParseProduct() {
    const Expr* left = ParseUnary(true);
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
      else if (AtOperator("**"))
        return Refuse(line, "the operator **"), left;
      else
        break;
      Skip();
      left = Binary(kind, line, left, ParseUnary(true));
    }
    return left;
  }

  const Expr* ParseUnary(bool with_filter) {
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

  const Expr* ParsePrimary() {
    const Token& token = Peek();
    const int line = token.line;
    switch (token.type) {
      case TokenType::kName:
        return ParseNameOrConstant();
      case TokenType::kString:
        return ParseStrings();
      case TokenType::kInteger:
        return ParseInteger();
      case TokenType::kFloat: {
        Skip();
        double number = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        return Constant(line, Value::Float(number));
      }
      case TokenType::kOperator:
        break;
      default:
        return FailUnexpected("expected an expression"), nullptr;
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

  const Expr* ParseNameOrConstant() {
    const int line = Peek().line;
    const std::string name = ExpectName();
    if (name == "true" || name == "True") return Constant(line, Value::Bool(true));
    if (name == "false" || name == "False") return Constant(line, Value::Bool(false));
    if (name == "none" || name == "None") return Constant(line, Value::None());
    if (in_macro_ && (name == "varargs" || name == "kwargs" || name == "caller")) {
      Refuse(line, "'" + name + "' inside a macro");
    }
    Expr* expr = New(ExprKind::kName, line);
    expr->name = out_->Intern(name);
    expr->text = name;
    return expr;
  }

  const Expr* ParseStrings() {
    const int line = Peek().line;
    std::string text;
    for (; Peek().type == TokenType::kString; Skip()) text += Peek().text;
    return TextConstant(line, std::move(text));
  }

  const Expr* ParseInteger() {
    const Token& token = Peek();
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
    if (error != std::errc() || end != token.text.data() + token.text.size()) {
      Refuse(token.line, "an integer of more than 64 bits");
    }
    Skip();
    return Constant(token.line, Value::Integer(number));
  }

  const Expr* ParseListItems(int line) {
    Expr* list = New(ExprKind::kList, line);
    while (!failed() && !AtOperator("]")) {
      if (!list->items.empty()) ExpectOperator(",");
      if (AtOperator("]")) break;
      list->items.push_back(ParseExpression());
    }
    ExpectOperator("]");
    return Done(list);
  }

  const Expr* ParseDictItems(int line) {
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

  const Expr* ParsePostfix(const Expr* expr) {
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

  const Expr* ParseAttribute(const Expr* object) {
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

  const Expr* ParseSubscript(const Expr* object) {
    const Nesting nesting(*this);
    if (failed()) return nullptr;
    const int line = Peek().line;
    Skip();
    const Expr* result = ParseSubscriptItem(object, line);
    if (AtOperator(",")) Refuse(line, "a subscript of several items");
    ExpectOperator("]");
    return result;
  }

  const Expr* ParseSubscriptItem(const Expr* object, int line) {
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

  void ParseArguments(Expr* call) {
    const Nesting nesting(*this);
    ExpectOperator("(");
    bool first = true;
    while (!failed() && !AtOperator(")")) {
      if (!first) ExpectOperator(",");
      first = false;
      if (AtOperator(")")) break;
      if (AtOperator("*") || AtOperator("**")) return Refuse(Peek().line, "unpacking arguments with *");
      if (Peek().type == TokenType::kName && Peek(1).type == TokenType::kOperator && Peek(1).text == "=") {
        std::string name = ExpectName();
        Skip();
        call->keywords.push_back({std::move(name), ParseExpression()});
      } else {
        if (!call->keywords.empty()) Fail(Peek().line, "invalid syntax for function call expression");
        call->items.push_back(ParseExpression());
      }
    }
    ExpectOperator(")");
  }

  const Expr* ParseCall(const Expr* callee) {
    Expr* call = New(ExprKind::kCall, Peek().line);
    call->a = callee;
    ParseArguments(call);
    if (!failed() && callee->kind == ExprKind::kAttribute && callee->function == 0) {
      Refuse(callee->line, "the method ." + callee->text + "()");
    }
    if (!failed() && callee->kind == ExprKind::kName) RefuseFunction(*callee);
    return Done(call);
  }

  void RefuseFunction(const Expr& callee) {
    for (const std::string_view name : {"lipsum", "cycler", "joiner", "super", "self"}) {
      if (callee.text == name) Refuse(callee.line, "the function " + callee.text + "()");
    }
  }

  /// Filters, tests and calls after an expression; with `inline_start` the first filter has no '|' before it.
  const Expr* ParseFilters(const Expr* expr, bool inline_start) {
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

  const Expr* ParseFilter(const Expr* input) {
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

  /// One that jinja2 has and the engine lacks is refused. One that jinja2 lacks too is refused as jinja2 does it:
  /// inside
  /// {% if %} only when it is reached.
  void RefuseOrDefer(const std::string& what, const std::string& name, bool known, int line) {
    if (known) return Refuse(line, "the " + what + " '" + name + "'");
    if (conditional_ == 0) Fail(line, "No " + what + " named '" + name + "'.");
  }

  const Expr* ParseTest(const Expr* input) {
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
      if (!test->keywords.empty()) Refuse(line, "a keyword argument of a test");
    } else if (AtTestArgument()) {
      if (AtName("is")) Fail(line, "You cannot chain multiple tests with is");
      test->items.push_back(ParsePostfix(ParsePrimary()));
    }
    const Expr* done = Done(test);
    return negated ? Unary(ExprKind::kNot, line, done) : done;
  }

  bool AtTestArgument() const {
    const TokenType type = Peek().type;
    if (type == TokenType::kName) return !AtName("else") && !AtName("or") && !AtName("and");
    if (type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat) return true;
    return AtOperator("(") || AtOperator("[") || AtOperator("{");
  }

  std::vector<Token> tokens_;
  std::unique_ptr<ParsedTemplate> out_;
  std::size_t next_ = 0;
  Status failure_;
  int nesting_ = 0;
  int conditional_ = 0;  ///< {% if %} around, up to the nearest scope
  int loops_ = 0;
  bool in_macro_ = false;
  std::vector<std::string> open_;
};

}  // namespace

Result<std::unique_ptr<const ParsedTemplate>> Parse(std::string_view source) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace draftmill::jinja

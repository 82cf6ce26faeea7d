#include "stages/template/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "stages/template/expression_parser.h"

namespace draftmill::jinja {
namespace {

constexpr std::array kRefusedStatements =
    std::to_array<std::string_view>({"extends", "block", "include", "from", "import", "autoescape"});

/// The statements.
class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<std::unique_ptr<const ParsedTemplate>> Run() {
    out_->body = ParseBody({});
    if (!failed() && Peek().type != TokenType::kEnd) FailUnexpected();
    if (!failed()) failure_ = unknown_;
    if (failed()) return failure_;
    if (const auto loop = out_->name_ids.find("loop"); loop != out_->name_ids.end()) out_->loop_name = loop->second;
    return std::unique_ptr<const ParsedTemplate>(std::move(out_));
  }

 private:
  Stmt* NewStmt(StmtKind kind, int line) {
    Stmt& stmt = out_->stmts.emplace_back();
    stmt.kind = kind;
    stmt.line = line;
    return &stmt;
  }

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
      ParsePrint(body, line);
    else if (name == "call")
      body.push_back(ParseCallBlock(line));
    else if (name == "with")
      body.push_back(ParseWith(line));
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
    stmt->recursive = TakeName("recursive");
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
    ParseParameters(stmt, line);
    EndTag();
    macros_.push_back(stmt);
    stmt->body = ParseScopedBody({"endmacro"});
    macros_.pop_back();
    Skip();
    return stmt;
  }

  void ParseParameters(Stmt* stmt, int line) {
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
  }

  const Stmt* ParseCallBlock(int line) {
    Stmt* stmt = NewStmt(StmtKind::kCallBlock, line);
    stmt->text = "caller";
    if (AtOperator("(")) ParseParameters(stmt, line);
    stmt->expr = ParseExpression();
    if (!failed() && stmt->expr->kind != ExprKind::kCall) Fail(line, "expected call");
    EndTag();
    macros_.push_back(stmt);
    stmt->body = ParseScopedBody({"endcall"});
    macros_.pop_back();
    Skip();
    return stmt;
  }

  const Stmt* ParseWith(int line) {
    Stmt* stmt = NewStmt(StmtKind::kWith, line);
    while (!failed() && Peek().type != TokenType::kBlockEnd) {
      if (!stmt->assignments.empty()) ExpectOperator(",");
      Target target = ParseTarget(true);
      ExpectOperator("=");
      stmt->assignments.push_back({std::move(target), ParseExpression()});
    }
    EndTag();
    stmt->body = ParseBody({"endwith"});
    Skip();
    return stmt;
  }

  void ParsePrint(Body& body, int line) {
    bool first = true;
    while (!failed() && Peek().type != TokenType::kBlockEnd) {
      if (!first) ExpectOperator(",");
      first = false;
      Stmt* stmt = NewStmt(StmtKind::kOutput, line);
      stmt->expr = ParseExpression();
      body.push_back(stmt);
    }
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

  int loops_ = 0;  ///< {% for %} around, up to the nearest scope
};

}  // namespace

Result<std::unique_ptr<const ParsedTemplate>> Parse(std::string_view source) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace draftmill::jinja

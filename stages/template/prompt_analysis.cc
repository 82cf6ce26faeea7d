#include "stages/template/prompt_analysis.h"

#include <vector>

namespace draftmill::jinja {
namespace {

/// Calls visit(const Expr&) for the expression and all its operands.
template <typename Visit>
void VisitExpr(const Expr* expr, Visit&& visit) {
  if (expr == nullptr) return;
  visit(*expr);
  for (const Expr* child : {expr->a, expr->b, expr->c, expr->d}) VisitExpr(child, visit);
  for (const Expr* child : expr->items) VisitExpr(child, visit);
  for (const Keyword& keyword : expr->keywords) VisitExpr(keyword.value, visit);
  for (const Comparison& comparison : expr->comparisons) VisitExpr(comparison.operand, visit);
}

/// Calls visit_stmt and visit_expr for the statement and everything inside it.
template <typename VisitStmt, typename VisitExprs>
void VisitTree(const Stmt& stmt, VisitStmt&& visit_stmt, VisitExprs&& visit_expr) {
  visit_stmt(stmt);
  VisitExpr(stmt.expr, visit_expr);
  VisitExpr(stmt.filter, visit_expr);
  for (const Parameter& parameter : stmt.parameters) VisitExpr(parameter.fallback, visit_expr);
  for (const Assignment& assignment : stmt.assignments) VisitExpr(assignment.value, visit_expr);
  for (const Stmt* child : stmt.body) VisitTree(*child, visit_stmt, visit_expr);
  for (const Stmt* child : stmt.otherwise) VisitTree(*child, visit_stmt, visit_expr);
  for (const Branch& branch : stmt.branches) {
    VisitExpr(branch.condition, visit_expr);
    for (const Stmt* child : branch.body) VisitTree(*child, visit_stmt, visit_expr);
  }
}

void MarkTarget(const Target& target, std::vector<bool>& assigned) {
  if (target.name != kNoName) assigned[target.name] = true;
  for (const Target& item : target.items) MarkTarget(item, assigned);
}

bool IsOfTheRow(std::string_view name) {
  return name == "messages" || name == "tools" || name == "documents" || name == "loop" || name == "namespace";
}

/// Whether a statement writes the same after any messages, given which names the template assigns.
bool IsClosed(const Stmt& stmt, const ParsedTemplate& parsed, const std::vector<bool>& assigned) {
  bool closed = true;
  VisitTree(
      stmt,
      [&closed](const Stmt& inner) {
        closed =
            closed && (inner.kind == StmtKind::kIf || inner.kind == StmtKind::kOutput || inner.kind == StmtKind::kData);
      },
      [&](const Expr& expr) {
        if (expr.kind == ExprKind::kCall) closed = false;
        if (expr.kind == ExprKind::kName && (assigned[expr.name] || IsOfTheRow(parsed.names[expr.name])))
          closed = false;
      });
  return closed;
}

}  // namespace

bool PromptIsConstant(const ParsedTemplate& parsed) {
  const auto prompt = parsed.name_ids.find("add_generation_prompt");
  if (prompt == parsed.name_ids.end()) return false;
  std::vector<bool> assigned(parsed.names.size(), false);
  for (const Stmt& stmt : parsed.stmts) {
    MarkTarget(stmt.target, assigned);
    if (stmt.name != kNoName) assigned[stmt.name] = true;
    for (const Parameter& parameter : stmt.parameters) assigned[parameter.name] = true;
    for (const Assignment& assignment : stmt.assignments) MarkTarget(assignment.target, assigned);
  }
  bool in_tail = false;
  bool writes_behind_loop = false;  // and before the prompt: whether the next turn begins with that depends on the row
  for (const Stmt* stmt : parsed.body) {
    VisitTree(
        *stmt, [](const Stmt&) {},
        [&](const Expr& expr) { in_tail = in_tail || (expr.kind == ExprKind::kName && expr.name == prompt->second); });
    if (in_tail && (writes_behind_loop || !IsClosed(*stmt, parsed, assigned))) return false;
    const bool is_silent =
        stmt->kind == StmtKind::kSet || stmt->kind == StmtKind::kSetBlock || stmt->kind == StmtKind::kMacro;
    if (stmt->kind == StmtKind::kFor)
      writes_behind_loop = false;
    else if (!in_tail && !is_silent)
      writes_behind_loop = true;
  }
  return in_tail;
}

}  // namespace draftmill::jinja

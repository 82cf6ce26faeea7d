// Scoped changes of an Evaluator's state. Internal to the evaluator's own files.
#pragma once

#include "stages/template/evaluator.h"

namespace draftmill::jinja {

/// Counts how deep statements, expressions and macro calls stand within each other.
class Evaluator::DepthGuard {
 public:
  explicit DepthGuard(Evaluator& evaluator) : evaluator_(evaluator) {
    if (++evaluator_.depth_ > evaluator_.limits_.depth) {
      evaluator_.Fail("nested deeper than " + std::to_string(evaluator_.limits_.depth) + " levels");
    }
  }
  ~DepthGuard() { --evaluator_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Evaluator& evaluator_;
};

/// An inner scope, from construction to destruction; `parent` is the scope that it sees.
class Evaluator::FrameGuard {
 public:
  FrameGuard(Evaluator& evaluator, std::size_t parent) : evaluator_(evaluator), outer_(evaluator.frame_) {
    begin_ = evaluator_.bindings_.size();
    evaluator_.frames_.back().end = begin_;
    evaluator_.frames_.push_back({begin_, begin_, parent, evaluator_.next_serial_++});
    evaluator_.frame_ = evaluator_.frames_.size() - 1;
  }
  ~FrameGuard() {
    evaluator_.bindings_.resize(begin_);
    evaluator_.frames_.pop_back();
    evaluator_.frame_ = outer_;
  }
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  /// Forgets what was bound in this scope.
  void Clear() { evaluator_.bindings_.resize(begin_); }

 private:
  Evaluator& evaluator_;
  std::size_t outer_;
  std::size_t begin_ = 0;
};

}  // namespace draftmill::jinja

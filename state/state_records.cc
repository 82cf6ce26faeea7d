#include "state/state_records.h"

namespace draftmill {

std::string_view StageStateName(StageState state) {
  switch (state) {
    case StageState::kPending: return "pending";
    case StageState::kRunning: return "running";
    case StageState::kDone: return "done";
    case StageState::kStale: return "stale";
  }
  return "stale";
}

std::string_view ShardStateName(ShardState state) {
  switch (state) {
    case ShardState::kPlanned: return "planned";
    case ShardState::kPublished: return "published";
    case ShardState::kDiscarded: return "discarded";
    case ShardState::kDamaged: return "damaged";
    case ShardState::kStale: return "stale";
  }
  return "stale";
}

bool CountsAsPublished(ShardState state) { return state == ShardState::kPublished || state == ShardState::kDiscarded; }

std::string_view EventLevelName(EventLevel level) {
  switch (level) {
    case EventLevel::kInfo: return "info";
    case EventLevel::kWarning: return "warning";
    case EventLevel::kError: return "error";
  }
  return "error";
}

}  // namespace draftmill

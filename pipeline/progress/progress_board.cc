#include "pipeline/progress/progress_board.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipeline/progress/format_units.h"

namespace draftmill {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kPointSpacingNs = kSecondNs / 2;
constexpr std::int64_t kWindowNs = 15 * kSecondNs;
constexpr std::size_t kStageColumns = 10;
constexpr std::size_t kBarColumns = 16;

double SecondsBetween(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) / static_cast<double>(kSecondNs);
}

bool HasEnded(const StageProgress& progress) { return progress.activity == StageActivity::kDone; }

/// Rounded down, so that 100 % means all of it.
std::string Percent(const StageProgress& progress) {
  if (progress.total < 0) return "";
  if (progress.total == 0 || progress.done >= progress.total) return "100 %";
  const double percent = 100.0 * static_cast<double>(progress.done) / static_cast<double>(progress.total);
  return fmt::format("{:.1f} %", static_cast<double>(static_cast<std::int64_t>(percent * 10)) / 10);
}

std::string Bar(const StageProgress& progress) {
  if (progress.total < 0) return std::string(kBarColumns, '.');
  const double share = progress.total == 0
                           ? 1.0
                           : std::min(1.0, static_cast<double>(progress.done) / static_cast<double>(progress.total));
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarColumns));
  return std::string(filled, '#') + std::string(kBarColumns - filled, '.');
}

std::string Counts(const StageProgress& progress) {
  const std::string total = progress.total < 0 ? "?" : FormatCount(progress.total);
  return FormatCount(progress.done) + "/" + total + " " + progress.unit;
}

std::string When(const StageView& stage) {
  switch (stage.progress.activity) {
    case StageActivity::kWaiting: return "waiting";
    case StageActivity::kPaused: return "paused";
    case StageActivity::kDone: return "done in " + FormatSeconds(stage.running_seconds);
    case StageActivity::kRunning: break;
  }
  return stage.eta_seconds ? "ETA " + FormatSeconds(*stage.eta_seconds) : FormatSeconds(stage.running_seconds);
}

std::string TokenRate(const StageView& stage) {
  return stage.progress.tokens > 0 ? FormatRate(stage.tokens_per_second) + " tok/s" : "";
}

/// A cell of a live row; the one with the lowest rank goes first where the row is too long.
struct Cell {
  std::string text;
  std::size_t width;
  int rank;
};

std::string RenderLiveRow(const StageView& stage, std::size_t columns) {
  const StageProgress& progress = stage.progress;
  const std::string fill =
      progress.buffer_fill < 0 ? "" : fmt::format("buffer {:.0f} %", 100 * std::min(1.0, progress.buffer_fill));
  std::vector<Cell> cells = {
      {progress.stage, kStageColumns, 9},
      {Percent(progress), 7, 8},
      {"[" + Bar(progress) + "]", kBarColumns + 2, 1},
      {Counts(progress), 26, 7},
      {FormatRate(stage.done_per_second) + "/s", 9, 4},
      {TokenRate(stage), 13, 5},
      {When(stage), 16, 6},
      {fill, 12, 2},
      {progress.bytes > 0 ? FormatBytes(progress.bytes) : "", 11, 3},
  };
  const auto row_width = [&] {
    std::size_t width = 0;
    for (const Cell& cell : cells) width += std::max(cell.width, cell.text.size()) + (width > 0 ? 2 : 0);
    return width;
  };
  while (cells.size() > 1 && row_width() > columns) {
    cells.erase(
        std::min_element(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) { return a.rank < b.rank; }));
  }
  std::string row;
  for (const Cell& cell : cells) row += (row.empty() ? "" : "  ") + fmt::format("{:<{}}", cell.text, cell.width);
  row.resize(std::min(row.size(), columns));
  row.erase(row.find_last_not_of(' ') + 1);
  return row;
}

}  // namespace

bool ProgressBoard::Update(const StageProgress& progress, std::int64_t now_ns) {
  const auto found = std::find_if(stages_.begin(), stages_.end(),
                                  [&](const Stage& stage) { return stage.progress.stage == progress.stage; });
  const Point point{now_ns, progress.done, progress.tokens};
  if (found == stages_.end()) {
    Stage stage{.progress = progress,
                .first_ns = now_ns,
                .ended_ns = HasEnded(progress) ? now_ns : 0,
                .first = point,
                .recent = {}};
    stage.recent.push_back(point);
    stages_.push_back(std::move(stage));
    return true;
  }
  const bool changed = found->progress.activity != progress.activity;
  if (changed && found->progress.activity == StageActivity::kWaiting) {
    found->first_ns = now_ns;
    found->first = point;
    found->recent = {point};
  }
  found->progress = progress;
  found->ended_ns = HasEnded(progress) ? (changed ? now_ns : found->ended_ns) : 0;
  if (now_ns - found->recent.back().at_ns >= kPointSpacingNs) found->recent.push_back(point);
  while (found->recent.size() > 2 && now_ns - found->recent.front().at_ns > kWindowNs) found->recent.pop_front();
  return changed;
}

std::vector<StageView> ProgressBoard::View(std::int64_t now_ns) const {
  std::vector<StageView> views;
  for (const Stage& stage : stages_) {
    StageView view{.progress = stage.progress};
    const bool ended = stage.ended_ns != 0;
    view.running_seconds = SecondsBetween(stage.first_ns, ended ? stage.ended_ns : now_ns);
    // A stage that has ended shows its mean rate; one that runs the rate of the window, which sinks while nothing
    // comes.
    const Point& from = ended ? stage.first : stage.recent.front();
    const double seconds = SecondsBetween(from.at_ns, ended ? stage.ended_ns : now_ns);
    if (seconds > 0 && stage.progress.activity != StageActivity::kWaiting) {
      view.done_per_second = std::max(0.0, static_cast<double>(stage.progress.done - from.done) / seconds);
      view.tokens_per_second = std::max(0.0, static_cast<double>(stage.progress.tokens - from.tokens) / seconds);
    }
    const std::int64_t left = stage.progress.total - stage.progress.done;
    if (stage.progress.total >= 0 && left >= 0 && view.done_per_second > 0) {
      view.eta_seconds = static_cast<double>(left) / view.done_per_second;
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<std::string> RenderLiveRows(const std::vector<StageView>& stages, int columns) {
  std::vector<std::string> rows;
  for (const StageView& stage : stages)
    rows.push_back(RenderLiveRow(stage, static_cast<std::size_t>(std::max(1, columns))));
  return rows;
}

std::string RenderLine(const StageView& stage) {
  const StageProgress& progress = stage.progress;
  std::string line = progress.stage + ": " + FormatCount(progress.done);
  if (progress.total >= 0) line += " of " + FormatCount(progress.total);
  line += " " + progress.unit;
  if (progress.total >= 0) line += " (" + Percent(progress) + ")";
  if (progress.activity == StageActivity::kWaiting) return line + ", waiting";
  line += ", " + FormatRate(stage.done_per_second) + " " + progress.unit + "/s";
  if (progress.tokens > 0) line += ", " + FormatRate(stage.tokens_per_second) + " tokens/s";
  if (progress.bytes > 0) line += ", " + FormatBytes(progress.bytes);
  if (progress.activity == StageActivity::kDone) return line + ", done in " + FormatSeconds(stage.running_seconds);
  if (progress.activity == StageActivity::kPaused) return line + ", paused";
  if (progress.buffer_fill >= 0) line += fmt::format(", buffer {:.0f} %", 100 * std::min(1.0, progress.buffer_fill));
  if (stage.eta_seconds) line += ", " + FormatSeconds(*stage.eta_seconds) + " left";
  return line;
}

}  // namespace draftmill

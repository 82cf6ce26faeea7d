#include "pipeline/progress/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_threads.h"
#include "pipeline/progress/progress_board.h"

namespace draftmill {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{100};
constexpr std::chrono::seconds kLineInterval{10};
constexpr int kColumnsWhereUnknown = 80;
constexpr int kRowsWhereUnknown = 24;

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

struct TerminalSize {
  int columns = kColumnsWhereUnknown;
  int rows = kRowsWhereUnknown;
};

TerminalSize SizeOf(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

/// The board, its lock, and a thread that shows it at an interval, and at once when something was told.
class ThreadedProgress : public ProgressSink {
 public:
  ThreadedProgress(int fd, Clock& clock, std::chrono::milliseconds interval)
      : fd_(fd), clock_(clock), interval_(interval) {}

  void Update(const StageProgress& progress) override {
    const std::scoped_lock lock(mutex_);
    if (!board_.Update(progress, clock_.MonotonicNs())) return;
    changed_.push_back(progress.stage);
    wake_.notify_one();
  }

  void Line(std::string_view text) override {
    const std::scoped_lock lock(mutex_);
    lines_.emplace_back(text);
    wake_.notify_one();
  }

 protected:
  struct Content {
    std::vector<StageView> stages;
    std::vector<std::string> changed;  ///< stages that are new or whose activity changed since the last time
    std::vector<std::string> lines;    ///< told since the last time
    bool interval_passed = false;
  };

  /// Writes to the descriptor; called from one thread at a time, without the lock.
  virtual void Show(const Content& content) = 0;
  int fd() const { return fd_; }

  /// Where the machine gives no thread, all that was told is shown by Stop.
  void Start() {
    Result<std::thread> thread = StartThread([this] { ShowUntilStopped(); });
    if (thread.ok()) thread_ = std::move(thread).value();
  }

  /// Shows what is left; to be called first in the destructor of the class that has Show.
  void Stop() {
    {
      const std::scoped_lock lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
    Show(TakeContent(true));
  }

 private:
  Content TakeContent(bool interval_passed) {
    const std::scoped_lock lock(mutex_);
    Content content{.stages = board_.View(clock_.MonotonicNs()),
                    .changed = std::exchange(changed_, {}),
                    .lines = std::exchange(lines_, {}),
                    .interval_passed = interval_passed};
    return content;
  }

  void ShowUntilStopped() {
    auto next = std::chrono::steady_clock::now() + interval_;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait_until(lock, next, [this] { return stopped_ || !lines_.empty() || !changed_.empty(); });
        if (stopped_) return;
      }
      const bool interval_passed = std::chrono::steady_clock::now() >= next;
      if (interval_passed) next = std::chrono::steady_clock::now() + interval_;
      Show(TakeContent(interval_passed));
      // Bounds the rate however often something is told.
      std::this_thread::sleep_for(kLiveInterval / 2);
    }
  }

  const int fd_;
  Clock& clock_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable wake_;
  ProgressBoard board_;
  std::vector<std::string> changed_;
  std::vector<std::string> lines_;
  bool stopped_ = false;
  std::thread thread_;
};

/// Redraws its rows in place. It never hides the cursor or switches modes, so a killed process leaves the terminal as
/// it was.
class LiveProgress : public ThreadedProgress {
 public:
  LiveProgress(int fd, Clock& clock) : ThreadedProgress(fd, clock, kLiveInterval) { Start(); }
  ~LiveProgress() override { Stop(); }

 private:
  void Show(const Content& content) override {
    const TerminalSize size = SizeOf(fd());
    std::string output;
    // Up to the first row of the last drawing, then erase to the end of the screen.
    if (rows_drawn_ > 0) output += "\x1b[" + std::to_string(rows_drawn_) + "A\r";
    output += "\x1b[J";
    for (const std::string& line : content.lines) output += line + "\n";
    std::vector<std::string> rows = RenderLiveRows(content.stages, size.columns - 1);
    if (static_cast<int>(rows.size()) > size.rows - 1)
      rows.resize(static_cast<std::size_t>(std::max(1, size.rows - 1)));
    for (const std::string& row : rows) output += row + "\n";
    rows_drawn_ = rows.size();
    WriteAll(fd(), output);
  }

  std::size_t rows_drawn_ = 0;
};

/// A line for each stage when it starts, ends, and every ten seconds while it runs.
class LineProgress : public ThreadedProgress {
 public:
  LineProgress(int fd, Clock& clock) : ThreadedProgress(fd, clock, kLineInterval) { Start(); }
  ~LineProgress() override { Stop(); }

 private:
  void Show(const Content& content) override {
    std::string output;
    for (const std::string& line : content.lines) output += line + "\n";
    for (const StageView& stage : content.stages) {
      bool changed = false;
      for (const std::string& name : content.changed) changed = changed || name == stage.progress.stage;
      const bool running = stage.progress.activity == StageActivity::kRunning;
      if (changed || (content.interval_passed && running)) output += RenderLine(stage) + "\n";
    }
    WriteAll(fd(), output);
  }
};

class SilentProgress : public ProgressSink {
 public:
  void Update(const StageProgress& /*progress*/) override {}
  void Line(std::string_view /*text*/) override {}
};

bool CanRedraw(int fd) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb" && *terminal != '\0';
}

}  // namespace

std::unique_ptr<ProgressSink> MakeProgress(int fd, Clock& clock) {
  if (CanRedraw(fd)) return std::make_unique<LiveProgress>(fd, clock);
  return std::make_unique<LineProgress>(fd, clock);
}

std::unique_ptr<ProgressSink> MakeSilentProgress() { return std::make_unique<SilentProgress>(); }

}  // namespace draftmill

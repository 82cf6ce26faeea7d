#include "pipeline/progress/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace draftmill {
namespace {

constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
constexpr int kExitRunAgain = 75;

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch lock-free atomics");
std::array<struct sigaction, kSignals.size()> g_previous;
bool g_is_installed = false;  // touched by the thread alone that makes the objects

void OnSignal(int number) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, number)) _exit(kExitRunAgain);
}

}  // namespace

StopSignal::StopSignal() : is_outermost_(!g_is_installed) {
  if (!is_outermost_) return;
  g_is_installed = true;
  g_signal = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &g_previous[i]);
    // `nohup` leaves SIGHUP ignored: a run that was told to outlive its terminal does.
    if (g_previous[i].sa_handler == SIG_IGN) continue;
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  if (!is_outermost_) return;
  g_is_installed = false;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_previous[i], nullptr);
}

bool StopSignal::Requested() { return g_signal.load() != 0; }

std::string StopSignal::Name() {
  switch (g_signal.load()) {
    case 0: return "";
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGUSR1: return "SIGUSR1";
    default: return "SIGHUP";
  }
}

}  // namespace draftmill

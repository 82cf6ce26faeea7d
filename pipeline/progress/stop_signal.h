// Stopping on request: SIGINT, SIGTERM, SIGUSR1 and SIGHUP set a flag that the source, the engine and every waiting
// step ask; a second signal ends the process at once with 75 (nothing published is harmed: publication is atomic).
#pragma once

#include <string>

namespace draftmill {

/// Installs the handlers for the lifetime of the object. Where another one lives already, this one does nothing: so a
/// command can catch signals from its first moment on, and the run within it need not know.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// True once a signal has come. Safe from any thread.
  static bool Requested();
  /// The name of the signal that came, e.g. "SIGTERM"; empty where none did.
  static std::string Name();

 private:
  bool is_outermost_ = false;
};

}  // namespace draftmill

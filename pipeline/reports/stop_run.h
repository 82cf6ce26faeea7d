// Asks the run of a work folder to end, for `draftmill stop`. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Sends SIGTERM to the process that holds the work folder's lock and waits until it let go of it, at most `wait_ms`.
/// Success also where nothing runs. kConflict where the run is on another machine or does not end in time; the message
/// says what to do.
Status StopRun(const std::string& work_folder, Clock& clock, std::int64_t wait_ms);

}  // namespace draftmill

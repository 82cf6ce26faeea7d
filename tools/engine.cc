// What `draftmill run` works with: the machine's files and clock, and the engine that is built in.
#include "tools/command.h"

namespace draftmill {

RunEnvironment CommandEnvironment() { return {}; }

}  // namespace draftmill

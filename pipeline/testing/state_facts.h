// What matters of a state database, as text that can be compared: where everything stands, what every file is, what
// everything was made from. Not what differs from one run to the next: runs, events, rates, times, the machine. For tests only.
#pragma once

#include <string>

namespace draftmill {

/// One line a row, table by table; the reason where the database cannot be read.
std::string StateFacts(const std::string& work_folder);

/// The first line that two texts do not share, for messages; empty where there is none.
std::string FirstDifference(const std::string& expected, const std::string& found);

}  // namespace draftmill

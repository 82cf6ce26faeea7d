#include "pipeline/run/bad_rows.h"

#include <fmt/format.h>

#include "pipeline/progress/format_units.h"

namespace draftmill {

Status BadRowJudge::Judge() const {
  if (static_cast<double>(bad_) <= max_fraction_ * static_cast<double>(rows_)) return OkStatus();
  return InvalidInput(fmt::format(
      "{} of {} rows are bad, more than limits.max_bad_fraction ({}) allows. What was finished is kept. `draftmill "
      "quarantine "
      "TARGET list` shows each with its reason; mend the sources, or raise limits.max_bad_fraction, and run again",
      FormatCount(bad_), FormatCount(rows_), max_fraction_));
}

}  // namespace draftmill

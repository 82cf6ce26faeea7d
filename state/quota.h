// What a disk's quotas leave to this user: less may be free to somebody than is free.
//
// Asked by quotactl_fd (Linux 5.14). Quotas of projects need no question: statvfs tells of them as of a disk's end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace draftmill {

/// One entry of a disk's quotas; a limit of 0 is none.
struct QuotaEntry {
  std::uint64_t hard_limit_bytes = 0;  ///< nothing is written beyond
  std::uint64_t soft_limit_bytes = 0;  ///< may be exceeded for some days
  std::uint64_t used_bytes = 0;
};

/// What the entry leaves, at least 0; nothing where it sets no limit. Where there are two, the lower one counts.
std::optional<std::int64_t> LeftUnder(const QuotaEntry& entry);

/// What the quotas of this process's user and group leave on the disk of `path`; nothing where none is set, the disk keeps
/// none, or the system does not tell. Thread-safe.
std::optional<std::int64_t> QuotaLeft(const std::string& path);

}  // namespace draftmill

#include "state/quota.h"

#include <fcntl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace draftmill {
namespace {

/// quotactl counts limits in blocks of this size, whatever the disk's are.
constexpr std::uint64_t kQuotaBlock = 1024;

std::optional<std::int64_t> LeftFor(int folder, int kind, unsigned int id) {
#ifdef SYS_quotactl_fd
  dqblk quota{};
  if (::syscall(SYS_quotactl_fd, folder, QCMD(Q_GETQUOTA, kind), id, &quota) != 0) return std::nullopt;
  return LeftUnder({quota.dqb_bhardlimit * kQuotaBlock, quota.dqb_bsoftlimit * kQuotaBlock, quota.dqb_curspace});
#else
  return std::nullopt;
#endif
}

}  // namespace

std::optional<std::int64_t> LeftUnder(const QuotaEntry& entry) {
  std::optional<std::int64_t> left;
  for (const std::uint64_t limit : {entry.hard_limit_bytes, entry.soft_limit_bytes}) {
    if (limit == 0) continue;
    const auto under = static_cast<std::int64_t>(limit > entry.used_bytes ? limit - entry.used_bytes : 0);
    left = std::min(under, left.value_or(under));
  }
  return left;
}

std::optional<std::int64_t> QuotaLeft(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (folder < 0) return std::nullopt;
  std::optional<std::int64_t> left = LeftFor(folder, USRQUOTA, ::geteuid());
  const std::optional<std::int64_t> of_group = LeftFor(folder, GRPQUOTA, ::getegid());
  ::close(folder);
  if (of_group) left = std::min(*of_group, left.value_or(*of_group));
  return left;
}

}  // namespace draftmill

// Which network file system a path lies on, as the kernel's table of mounts names it: FUSE has one number for local and
// remote file systems alike, and new kinds of storage have numbers that no header knows.
//
//   NetworkMountKind(RealFileSystem().ReadAll("/proc/self/mountinfo").value(), major(info.st_dev), minor(info.st_dev))
//
// Plain function; safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace draftmill {

/// The kind ("NFS", "FUSE sshfs") of the mount with this device number where it is a network file system; empty where it is
/// a local one, or where the table does not have it. `mountinfo` is /proc/self/mountinfo (proc(5)).
std::string NetworkMountKind(std::string_view mountinfo, unsigned major, unsigned minor);

}  // namespace draftmill

#include "state/mount_kind.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace draftmill {
namespace {

constexpr std::array kNetworkTypes = {std::pair{"nfs", "NFS"},           std::pair{"nfs4", "NFS"},
                                      std::pair{"cifs", "SMB"},          std::pair{"smb3", "SMB"},
                                      std::pair{"smbfs", "SMB"},         std::pair{"ceph", "Ceph"},
                                      std::pair{"lustre", "Lustre"},     std::pair{"9p", "9P"},
                                      std::pair{"afs", "AFS"},           std::pair{"gpfs", "GPFS"},
                                      std::pair{"beegfs", "BeeGFS"},     std::pair{"wekafs", "WekaFS"},
                                      std::pair{"panfs", "PanFS"},       std::pair{"glusterfs", "GlusterFS"},
                                      std::pair{"orangefs", "OrangeFS"}, std::pair{"pvfs2", "OrangeFS"},
                                      std::pair{"ocfs2", "OCFS2"},       std::pair{"gfs2", "GFS2"},
                                      std::pair{"davfs", "WebDAV"},      std::pair{"coda", "Coda"}};

/// FUSE programs whose files lie elsewhere; what the type ("fuse.sshfs") or, where it is "fuse" alone, the source begins with.
constexpr std::array<std::string_view, 24> kRemoteFuse = {
    "sshfs",   "s3fs",  "gcsfuse", "goofys",   "geesefs", "rclone",    "juicefs",      "glusterfs",
    "ceph",    "mfs",   "moosefs", "lizardfs", "weed",    "seaweedfs", "blobfuse",     "mountpoint-s3",
    "alluxio", "cvmfs", "hdfs",    "davfs",    "quobyte", "curlftpfs", "google-drive", "wekafs"};

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

bool BeginsWithNoCase(std::string_view text, std::string_view beginning) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return text.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), text.begin(), [&](char a, char b) { return a == lower(b); });
}

std::string KindOf(std::string_view type, std::string_view source) {
  for (const auto& [name, kind] : kNetworkTypes) {
    if (type == name) return kind;
  }
  if (type != "fuse" && !type.starts_with("fuse.")) return "";
  const std::string_view program = type == "fuse" ? source : type.substr(5);
  for (const std::string_view remote : kRemoteFuse) {
    if (BeginsWithNoCase(program, remote)) return "FUSE " + std::string(remote);
  }
  return "";
}

}  // namespace

std::string NetworkMountKind(std::string_view mountinfo, unsigned major, unsigned minor) {
  const std::string device = std::to_string(major) + ":" + std::to_string(minor);
  while (!mountinfo.empty()) {
    const std::size_t end = std::min(mountinfo.find('\n'), mountinfo.size());
    const std::vector<std::string_view> words = Words(mountinfo.substr(0, end));
    mountinfo.remove_prefix(std::min(end + 1, mountinfo.size()));
    // number, parent, device, root, place, options, any number of further fields, "-", type, source, options
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 3 || words[2] != device || words.end() - dash < 3) continue;
    return KindOf(dash[1], dash[2]);
  }
  return "";
}

}  // namespace draftmill

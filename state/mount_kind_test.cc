#include "state/mount_kind.h"

#include <gtest/gtest.h>

namespace draftmill {
namespace {

constexpr std::string_view kTable =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "36 22 0:31 / /data rw,noatime shared:1 master:2 - nfs4 server:/export rw,vers=4.2\n"
    "37 22 0:32 /sub /mnt/a\\040b rw - fuse.sshfs user@host:/home rw,user_id=0\n"
    "38 22 0:33 / /mnt/s3 rw - fuse mountpoint-s3 rw\n"
    "39 22 0:34 / /mnt/juice rw - fuse JuiceFS:volume rw\n"
    "40 22 0:35 / /mnt/usb rw - fuseblk /dev/sdb1 rw\n"
    "41 22 0:36 / /mnt/pool rw - fuse.mergerfs a:b rw\n"
    "42 22 0:37 / /dev/shm rw - tmpfs tmpfs rw\n"
    "43 22 0:38 / /mnt/weka rw - wekafs cluster/fs rw\n"
    "broken\n"
    "44 22 0:39 /\n";

TEST(MountKindTest, NamesNetworkFileSystems) {
  EXPECT_EQ(NetworkMountKind(kTable, 0, 31), "NFS");
  EXPECT_EQ(NetworkMountKind(kTable, 0, 32), "FUSE sshfs");
  EXPECT_EQ(NetworkMountKind(kTable, 0, 33), "FUSE mountpoint-s3");
  EXPECT_EQ(NetworkMountKind(kTable, 0, 34), "FUSE juicefs");
  EXPECT_EQ(NetworkMountKind(kTable, 0, 38), "WekaFS");
}

TEST(MountKindTest, LetsLocalOnesPass) {
  for (const auto& [major, minor] : {std::pair{254U, 0U}, {0U, 35U}, {0U, 36U}, {0U, 37U}, {0U, 39U}, {7U, 7U}}) {
    EXPECT_EQ(NetworkMountKind(kTable, major, minor), "") << major << ":" << minor;
  }
  EXPECT_EQ(NetworkMountKind("", 0, 31), "");
}

}  // namespace
}  // namespace draftmill

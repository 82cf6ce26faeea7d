// A FileSystem that goes wrong on purpose: for tests of everything that writes.
//
//   FaultyFileSystem files(RealFileSystem(), folder.path());
//   files.Inject({.point = "write:shards/", .nth = 3, .status = IoError("injected"), .kept_bytes = 100});
//   files.SetFreeBytes(1 << 20);
//   files.SetHook([](std::string_view point) { if (point == "rename:shards/x") raise(SIGKILL); return OkStatus(); });
//   files.PowerCut(Unsynced::kLost);
//
// Every operation is a named point, `operation:path` with the path relative to the root that was given:
//   create: write: allocate: truncate: sync: rename: (by its new name) remove: make_folder: remove_tree: sync_folder:
// change the disk and are told to the hook before they happen; open: read: list: stat: only meet injected faults.
//
// A power cut leaves what a disk promises and nothing more: content as of each file's last Sync, names as of the last
// SyncFolder of their folder. Model: LevelDB's fault_injection_test. Content of synced files is kept in memory, so
// files should be small. Files opened before a power cut fail from then on, those opened after it work.
//
// Threads: any number, as for every FileSystem. The hook is called without a lock held, from the calling thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state/file_system.h"

namespace draftmill {

/// One operation that fails.
struct Fault {
  std::string point{};          ///< beginning of the point's name: "write:", "rename:shards/"; "" matches every point
  int nth = 1;                  ///< the first match is 1
  Status status{};              ///< what the operation returns instead of succeeding
  std::int64_t kept_bytes = 0;  ///< of a write: how many of its first bytes reach the file all the same
  bool sticky = false;          ///< all later matches fail too
};

/// What becomes of that which was not synced when the power goes.
enum class Unsynced : std::uint8_t {
  kLost,          ///< neither content nor names survive
  kNamesSurvive,  ///< creations, renames and removals survive, content does not: finds a missing Sync before a Rename
};

class FaultyFileSystem final : public FileSystem {
 public:
  using Hook = std::function<Status(std::string_view point)>;

  /// `base` must outlive this and everything opened through it. Points are named relative to `root`.
  FaultyFileSystem(FileSystem& base, std::string root);
  ~FaultyFileSystem() override;

  void Inject(Fault fault);
  /// Forgets all injected faults.
  void ClearFaults();
  /// Called before every change; a failure that it returns is the operation's, which then changes nothing.
  void SetHook(Hook hook);
  /// From now on this many bytes may be written (written again counts again), then the disk is full. Negative: no
  /// limit.
  void SetFreeBytes(std::int64_t free_bytes);
  /// From now on a sync or folder sync whose point begins so does nothing and says it did: what a program would do that
  /// forgot it.
  void OmitSyncs(std::string point);
  /// The names of all changes so far, in order.
  std::vector<std::string> Points() const;
  /// Takes the disk back to what would be found after a power loss.
  Status PowerCut(Unsynced unsynced);

  Result<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path, OpenMode mode) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  /// Durable at once, as the interface promises; a folder survives every power cut.
  Status MakeFolder(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;
  Result<std::vector<FileInfo>> List(const std::string& folder) override;
  Result<FileInfo> Stat(const std::string& path) override;
  Result<DiskSpace> Space(const std::string& path) override;

 private:
  class FaultyReadableFile;
  class FaultyWritableFile;

  /// A file whatever its name: what of it would survive.
  struct Node {
    std::string durable_content;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  /// A folder that got another name within its parent, or moved to another one; decided by the sync of the new parent.
  struct FolderRename {
    std::string from;
    std::string to;
  };

  /// What a point must do: go on, or fail after `kept_bytes` of the write.
  struct Verdict {
    Status status;
    std::int64_t kept_bytes = 0;
  };

  std::string PointName(std::string_view operation, const std::string& path) const;
  Verdict JudgeFaults(const std::string& point);
  /// Records the point, asks the hook, then the faults.
  Verdict JudgeChange(std::string_view operation, const std::string& path);
  Status JudgeRead(std::string_view operation, const std::string& path);
  /// Whether this sync is one that OmitSyncs leaves out. Needs the lock.
  bool IsOmitted(std::string_view operation, const std::string& path) const;
  /// What was judged before a power cut must not reach the disk after it. Needs the lock.
  Status CheckPower(const std::string& path, std::uint64_t power_cuts) const;
  std::uint64_t power_cuts() const;
  /// How many of `bytes` the disk still takes; they are used up.
  std::int64_t TakeSpace(std::int64_t bytes);
  std::int64_t free_bytes() const;

  /// The node of a path that exists; what was there before this object counts as durable. Needs the lock.
  Status Track(const std::string& path);
  Status TrackTree(const std::string& folder);
  Status Store(const std::string& path, const std::string& content);
  /// Rename where `from` is a folder. Needs the lock.
  Status RenameFolder(const std::string& from, const std::string& to);
  /// Gives everything below `from` its name below `to`.
  static void MoveBelow(const std::string& from, const std::string& to, Names& names);

  FileSystem& base_;
  const std::string root_;
  mutable std::mutex mutex_;
  Hook hook_;
  std::vector<Fault> faults_;
  std::vector<std::string> omitted_syncs_;
  std::vector<std::string> points_;
  std::int64_t free_bytes_ = -1;
  std::uint64_t power_cuts_ = 0;
  Names names_;          ///< as a running process sees them; only paths that were touched
  Names durable_names_;  ///< as they would be found after a power loss
  std::vector<FolderRename> unsynced_folder_renames_;
};

}  // namespace draftmill

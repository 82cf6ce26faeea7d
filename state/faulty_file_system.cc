#include "state/faulty_file_system.h"

#include <algorithm>
#include <utility>

namespace draftmill {
namespace {

constexpr std::int64_t kMaxTrackedBytes = std::int64_t{1} << 30;

bool IsBelow(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

}  // namespace

class FaultyFileSystem::FaultyReadableFile final : public ReadableFile {
 public:
  FaultyReadableFile(FaultyFileSystem& owner, std::string path, std::unique_ptr<ReadableFile> base)
      : owner_(owner), path_(std::move(path)), base_(std::move(base)) {}

  Result<std::size_t> ReadAt(std::int64_t offset, std::span<std::byte> buffer) override {
    DRAFTMILL_RETURN_IF_ERROR(owner_.JudgeRead("read", path_));
    return base_->ReadAt(offset, buffer);
  }
  Result<std::int64_t> Size() override { return base_->Size(); }

 private:
  FaultyFileSystem& owner_;
  std::string path_;
  std::unique_ptr<ReadableFile> base_;
};

class FaultyFileSystem::FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(FaultyFileSystem& owner, std::string path, std::unique_ptr<WritableFile> base,
                     std::shared_ptr<Node> node, std::uint64_t power_cuts)
      : owner_(owner),
        path_(std::move(path)),
        base_(std::move(base)),
        node_(std::move(node)),
        power_cuts_(power_cuts) {}

  Status WriteAt(std::int64_t offset, std::span<const std::byte> bytes) override {
    DRAFTMILL_RETURN_IF_ERROR(CheckPower());
    const Verdict verdict = owner_.JudgeChange("write", path_);
    if (!verdict.status.ok()) {
      const auto kept = std::min(bytes.size(), static_cast<std::size_t>(verdict.kept_bytes));
      if (kept > 0) DRAFTMILL_RETURN_IF_ERROR(base_->WriteAt(offset, bytes.first(kept)));
      return verdict.status;
    }
    const auto size = static_cast<std::int64_t>(bytes.size());
    const std::int64_t taken = owner_.TakeSpace(size);
    DRAFTMILL_RETURN_IF_ERROR(base_->WriteAt(offset, bytes.first(static_cast<std::size_t>(taken))));
    return taken == size ? OkStatus() : DiskFull("write " + path_ + ": injected: no space left");
  }

  Status Allocate(std::int64_t size_bytes) override {
    DRAFTMILL_RETURN_IF_ERROR(CheckPower());
    DRAFTMILL_RETURN_IF_ERROR(owner_.JudgeChange("allocate", path_).status);
    const std::int64_t free_bytes = owner_.free_bytes();
    if (free_bytes >= 0 && size_bytes > free_bytes) return DiskFull("reserve space for " + path_ + ": injected");
    return base_->Allocate(size_bytes);
  }

  Status Truncate(std::int64_t size_bytes) override {
    DRAFTMILL_RETURN_IF_ERROR(CheckPower());
    DRAFTMILL_RETURN_IF_ERROR(owner_.JudgeChange("truncate", path_).status);
    return base_->Truncate(size_bytes);
  }

  Status Sync() override {
    DRAFTMILL_RETURN_IF_ERROR(CheckPower());
    DRAFTMILL_RETURN_IF_ERROR(owner_.JudgeChange("sync", path_).status);
    const std::lock_guard lock(owner_.mutex_);
    DRAFTMILL_RETURN_IF_ERROR(owner_.CheckPower(path_, power_cuts_));
    if (owner_.IsOmitted("sync", path_)) return OkStatus();
    // The file may have another name by now.
    for (const auto& [name, node] : owner_.names_) {
      if (node != node_) continue;
      DRAFTMILL_ASSIGN_OR_RETURN(node_->durable_content, owner_.base_.ReadAll(name, kMaxTrackedBytes));
    }
    return OkStatus();
  }

  Status Close() override {
    DRAFTMILL_RETURN_IF_ERROR(CheckPower());
    return base_->Close();
  }

 private:
  Status CheckPower() const {
    const std::lock_guard lock(owner_.mutex_);
    return owner_.CheckPower(path_, power_cuts_);
  }

  FaultyFileSystem& owner_;
  std::string path_;
  std::unique_ptr<WritableFile> base_;
  std::shared_ptr<Node> node_;
  std::uint64_t power_cuts_;
};

FaultyFileSystem::FaultyFileSystem(FileSystem& base, std::string root) : base_(base), root_(std::move(root)) {}
FaultyFileSystem::~FaultyFileSystem() = default;

void FaultyFileSystem::Inject(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
}

void FaultyFileSystem::ClearFaults() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
}

void FaultyFileSystem::SetHook(Hook hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void FaultyFileSystem::OmitSyncs(std::string point) {
  const std::lock_guard lock(mutex_);
  omitted_syncs_.push_back(std::move(point));
}

bool FaultyFileSystem::IsOmitted(std::string_view operation, const std::string& path) const {
  const std::string point = PointName(operation, path);
  return std::any_of(omitted_syncs_.begin(), omitted_syncs_.end(),
                     [&](const std::string& omitted) { return point.starts_with(omitted); });
}

Status FaultyFileSystem::CheckPower(const std::string& path, std::uint64_t power_cuts) const {
  return power_cuts_ == power_cuts ? OkStatus() : IoError(path + ": injected: begun before a power cut");
}

std::uint64_t FaultyFileSystem::power_cuts() const {
  const std::lock_guard lock(mutex_);
  return power_cuts_;
}

void FaultyFileSystem::SetFreeBytes(std::int64_t free_bytes) {
  const std::lock_guard lock(mutex_);
  free_bytes_ = free_bytes;
}

std::int64_t FaultyFileSystem::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

std::vector<std::string> FaultyFileSystem::Points() const {
  const std::lock_guard lock(mutex_);
  return points_;
}

std::string FaultyFileSystem::PointName(std::string_view operation, const std::string& path) const {
  std::string name(operation);
  name += ':';
  if (IsBelow(path, root_)) {
    name += std::string_view(path).substr(root_.size() + 1);
  } else {
    name += path == root_ ? "." : path;
  }
  return name;
}

FaultyFileSystem::Verdict FaultyFileSystem::JudgeFaults(const std::string& point) {
  const std::lock_guard lock(mutex_);
  Verdict verdict;
  for (Fault& fault : faults_) {
    if (!point.starts_with(fault.point)) continue;
    if (fault.nth > 0) --fault.nth;
    if (fault.nth != 0 || !verdict.status.ok()) continue;
    verdict = {fault.status.WithContext(point), fault.kept_bytes};
    if (!fault.sticky) fault.nth = -1;
  }
  return verdict;
}

FaultyFileSystem::Verdict FaultyFileSystem::JudgeChange(std::string_view operation, const std::string& path) {
  const std::string point = PointName(operation, path);
  Hook hook;
  {
    const std::lock_guard lock(mutex_);
    points_.push_back(point);
    hook = hook_;
  }
  if (hook) {
    Status status = hook(point);
    if (!status.ok()) return {std::move(status), 0};
  }
  return JudgeFaults(point);
}

Status FaultyFileSystem::JudgeRead(std::string_view operation, const std::string& path) {
  return JudgeFaults(PointName(operation, path)).status;
}

std::int64_t FaultyFileSystem::TakeSpace(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (free_bytes_ < 0) return bytes;
  const std::int64_t taken = std::min(bytes, free_bytes_);
  free_bytes_ -= taken;
  return taken;
}

Status FaultyFileSystem::Track(const std::string& path) {
  if (names_.contains(path)) return OkStatus();
  auto node = std::make_shared<Node>();
  DRAFTMILL_ASSIGN_OR_RETURN(node->durable_content, base_.ReadAll(path, kMaxTrackedBytes));
  names_[path] = node;
  durable_names_[path] = std::move(node);
  return OkStatus();
}

Status FaultyFileSystem::TrackTree(const std::string& folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, base_.List(folder));
  for (const FileInfo& entry : entries) {
    const std::string path = JoinPath(folder, entry.name);
    DRAFTMILL_RETURN_IF_ERROR(entry.is_folder ? TrackTree(path) : Track(path));
  }
  return OkStatus();
}

Status FaultyFileSystem::Store(const std::string& path, const std::string& content) {
  DRAFTMILL_RETURN_IF_ERROR(base_.MakeFolder(ParentPath(path)));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, base_.OpenForWriting(path, OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(content))));
  return file->Close();
}

Status FaultyFileSystem::PowerCut(Unsynced unsynced) {
  const std::lock_guard lock(mutex_);
  ++power_cuts_;
  if (unsynced == Unsynced::kNamesSurvive) {
    durable_names_ = names_;
  } else {
    for (auto rename = unsynced_folder_renames_.rbegin(); rename != unsynced_folder_renames_.rend(); ++rename) {
      if (!base_.Exists(rename->to)) continue;
      DRAFTMILL_RETURN_IF_ERROR(base_.Rename(rename->to, rename->from));
      MoveBelow(rename->to, rename->from, names_);
    }
  }
  unsynced_folder_renames_.clear();
  for (const auto& [path, node] : names_) DRAFTMILL_RETURN_IF_ERROR(base_.Remove(path));
  for (const auto& [path, node] : durable_names_) DRAFTMILL_RETURN_IF_ERROR(Store(path, node->durable_content));
  names_ = durable_names_;
  return OkStatus();
}

Result<std::unique_ptr<ReadableFile>> FaultyFileSystem::OpenForReading(const std::string& path) {
  DRAFTMILL_RETURN_IF_ERROR(JudgeRead("open", path));
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> base, base_.OpenForReading(path));
  return std::unique_ptr<ReadableFile>(std::make_unique<FaultyReadableFile>(*this, path, std::move(base)));
}

Result<std::unique_ptr<WritableFile>> FaultyFileSystem::OpenForWriting(const std::string& path, OpenMode mode) {
  const std::uint64_t power = power_cuts();
  DRAFTMILL_RETURN_IF_ERROR(mode == OpenMode::kOpenExisting ? JudgeRead("open", path)
                                                            : JudgeChange("create", path).status);
  const std::lock_guard lock(mutex_);
  DRAFTMILL_RETURN_IF_ERROR(CheckPower(path, power));
  if (base_.Exists(path)) DRAFTMILL_RETURN_IF_ERROR(Track(path));
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> base, base_.OpenForWriting(path, mode));
  std::shared_ptr<Node>& node = names_[path];
  if (node == nullptr) node = std::make_shared<Node>();
  return std::unique_ptr<WritableFile>(
      std::make_unique<FaultyWritableFile>(*this, path, std::move(base), node, power_cuts_));
}

Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  const std::uint64_t power = power_cuts();
  DRAFTMILL_RETURN_IF_ERROR(JudgeChange("rename", to).status);
  const std::lock_guard lock(mutex_);
  DRAFTMILL_RETURN_IF_ERROR(CheckPower(to, power));
  if (const Result<FileInfo> info = base_.Stat(from); info.ok() && info->is_folder) return RenameFolder(from, to);
  DRAFTMILL_RETURN_IF_ERROR(Track(from));
  if (base_.Exists(to)) DRAFTMILL_RETURN_IF_ERROR(Track(to));
  DRAFTMILL_RETURN_IF_ERROR(base_.Rename(from, to));
  names_[to] = names_[from];
  names_.erase(from);
  return OkStatus();
}

Status FaultyFileSystem::RenameFolder(const std::string& from, const std::string& to) {
  DRAFTMILL_RETURN_IF_ERROR(TrackTree(from));
  DRAFTMILL_RETURN_IF_ERROR(base_.Rename(from, to));
  MoveBelow(from, to, names_);
  unsynced_folder_renames_.push_back({from, to});
  return OkStatus();
}

void FaultyFileSystem::MoveBelow(const std::string& from, const std::string& to, Names& names) {
  Names moved;
  for (const auto& [path, node] : names) {
    if (IsBelow(path, from)) moved[to + path.substr(from.size())] = node;
  }
  std::erase_if(names, [&](const auto& entry) { return IsBelow(entry.first, from); });
  names.merge(moved);
}

Status FaultyFileSystem::Remove(const std::string& path) {
  const std::uint64_t power = power_cuts();
  DRAFTMILL_RETURN_IF_ERROR(JudgeChange("remove", path).status);
  const std::lock_guard lock(mutex_);
  DRAFTMILL_RETURN_IF_ERROR(CheckPower(path, power));
  if (base_.Exists(path)) DRAFTMILL_RETURN_IF_ERROR(Track(path));
  DRAFTMILL_RETURN_IF_ERROR(base_.Remove(path));
  names_.erase(path);
  return OkStatus();
}

Status FaultyFileSystem::MakeFolder(const std::string& path) {
  DRAFTMILL_RETURN_IF_ERROR(JudgeChange("make_folder", path).status);
  return base_.MakeFolder(path);
}

Status FaultyFileSystem::RemoveTree(const std::string& path) {
  const std::uint64_t power = power_cuts();
  DRAFTMILL_RETURN_IF_ERROR(JudgeChange("remove_tree", path).status);
  const std::lock_guard lock(mutex_);
  DRAFTMILL_RETURN_IF_ERROR(CheckPower(path, power));
  const Result<FileInfo> info = base_.Stat(path);
  if (info.ok()) DRAFTMILL_RETURN_IF_ERROR(info->is_folder ? TrackTree(path) : Track(path));
  DRAFTMILL_RETURN_IF_ERROR(base_.RemoveTree(path));
  std::erase_if(names_, [&](const auto& entry) { return entry.first == path || IsBelow(entry.first, path); });
  return OkStatus();
}

Status FaultyFileSystem::SyncFolder(const std::string& path) {
  DRAFTMILL_RETURN_IF_ERROR(JudgeChange("sync_folder", path).status);
  DRAFTMILL_RETURN_IF_ERROR(base_.SyncFolder(path));
  const std::lock_guard lock(mutex_);
  if (IsOmitted("sync_folder", path)) return OkStatus();
  std::erase_if(unsynced_folder_renames_, [&](const FolderRename& rename) {
    if (ParentPath(rename.to) != path) return false;
    MoveBelow(rename.from, rename.to, durable_names_);
    return true;
  });
  // Names in this folder, and those in folders below it that are gone with all that was in them.
  std::erase_if(durable_names_, [&](const auto& entry) {
    const std::string parent = ParentPath(entry.first);
    const bool decided = parent == path || (IsBelow(entry.first, path) && !base_.Exists(parent));
    return decided && !names_.contains(entry.first);
  });
  for (const auto& [name, node] : names_) {
    if (ParentPath(name) == path) durable_names_[name] = node;
  }
  return OkStatus();
}

Result<std::vector<FileInfo>> FaultyFileSystem::List(const std::string& folder) {
  DRAFTMILL_RETURN_IF_ERROR(JudgeRead("list", folder));
  return base_.List(folder);
}

Result<FileInfo> FaultyFileSystem::Stat(const std::string& path) {
  DRAFTMILL_RETURN_IF_ERROR(JudgeRead("stat", path));
  return base_.Stat(path);
}

Result<DiskSpace> FaultyFileSystem::Space(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(DiskSpace space, base_.Space(path));
  if (const std::int64_t limit = free_bytes(); limit >= 0) space.free_bytes = std::min(space.free_bytes, limit);
  return space;
}

}  // namespace draftmill

#include "state/sqlite_over_file_system.h"

#include <sqlite3.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace draftmill {
namespace {

/// What SQLite holds for an open file. The file of the Unix VFS lies right behind it in the same memory, which SQLite
/// aligns to 8 bytes.
struct OpenFile : sqlite3_file {
  FileSystem* files = nullptr;
  std::unique_ptr<WritableFile> writable;  ///< absent: only read, or temporary and Unix's alone
  std::string path;
  bool syncs_folder = false;  ///< at the next sync
};

static_assert(alignof(OpenFile) == 8);

OpenFile& Ours(sqlite3_file* file) { return *static_cast<OpenFile*>(file); }
sqlite3_file* Unix(sqlite3_file* file) { return reinterpret_cast<sqlite3_file*>(static_cast<OpenFile*>(file) + 1); }

int CodeOf(const Status& status, int code) {
  if (status.ok()) return SQLITE_OK;
  return status.code() == StatusCode::kDiskFull ? SQLITE_FULL : code;
}

int Close(sqlite3_file* file) {
  const int code = Unix(file)->pMethods != nullptr ? Unix(file)->pMethods->xClose(Unix(file)) : SQLITE_OK;
  std::destroy_at(&Ours(file));
  return code;
}

int Read(sqlite3_file* file, void* buffer, int bytes, sqlite3_int64 offset) {
  return Unix(file)->pMethods->xRead(Unix(file), buffer, bytes, offset);
}

int Write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 offset) {
  if (!Ours(file).writable) return Unix(file)->pMethods->xWrite(Unix(file), bytes, count, offset);
  const std::span<const std::byte> content(static_cast<const std::byte*>(bytes), static_cast<std::size_t>(count));
  return CodeOf(Ours(file).writable->WriteAt(offset, content), SQLITE_IOERR_WRITE);
}

int Truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  if (!Ours(file).writable) return Unix(file)->pMethods->xTruncate(Unix(file), bytes);
  return CodeOf(Ours(file).writable->Truncate(bytes), SQLITE_IOERR_TRUNCATE);
}

int Sync(sqlite3_file* file, int flags) {
  OpenFile& ours = Ours(file);
  if (!ours.writable) return Unix(file)->pMethods->xSync(Unix(file), flags);
  Status status = ours.writable->Sync();
  if (status.ok() && std::exchange(ours.syncs_folder, false)) status = ours.files->SyncFolder(ParentPath(ours.path));
  return CodeOf(status, SQLITE_IOERR_FSYNC);
}

int FileSize(sqlite3_file* file, sqlite3_int64* bytes) { return Unix(file)->pMethods->xFileSize(Unix(file), bytes); }
int Lock(sqlite3_file* file, int level) { return Unix(file)->pMethods->xLock(Unix(file), level); }
int Unlock(sqlite3_file* file, int level) { return Unix(file)->pMethods->xUnlock(Unix(file), level); }
int CheckReservedLock(sqlite3_file* file, int* held) {
  return Unix(file)->pMethods->xCheckReservedLock(Unix(file), held);
}
int FileControl(sqlite3_file* file, int operation, void* argument) {
  return Unix(file)->pMethods->xFileControl(Unix(file), operation, argument);
}
int SectorSize(sqlite3_file* file) { return Unix(file)->pMethods->xSectorSize(Unix(file)); }
int DeviceCharacteristics(sqlite3_file* file) { return Unix(file)->pMethods->xDeviceCharacteristics(Unix(file)); }
int ShmMap(sqlite3_file* file, int page, int bytes, int extend, void volatile** memory) {
  return Unix(file)->pMethods->xShmMap(Unix(file), page, bytes, extend, memory);
}
int ShmLock(sqlite3_file* file, int offset, int count, int flags) {
  return Unix(file)->pMethods->xShmLock(Unix(file), offset, count, flags);
}
void ShmBarrier(sqlite3_file* file) { Unix(file)->pMethods->xShmBarrier(Unix(file)); }
int ShmUnmap(sqlite3_file* file, int remove) { return Unix(file)->pMethods->xShmUnmap(Unix(file), remove); }

/// Version 2: with shared memory, without memory mapping.
constexpr sqlite3_io_methods kMethods = {2,
                                         &Close,
                                         &Read,
                                         &Write,
                                         &Truncate,
                                         &Sync,
                                         &FileSize,
                                         &Lock,
                                         &Unlock,
                                         &CheckReservedLock,
                                         &FileControl,
                                         &SectorSize,
                                         &DeviceCharacteristics,
                                         &ShmMap,
                                         &ShmLock,
                                         &ShmBarrier,
                                         &ShmUnmap,
                                         nullptr,
                                         nullptr};

/// What the VFS is registered with.
struct Context {
  FileSystem* files = nullptr;
  sqlite3_vfs* unix_vfs = nullptr;
};

const Context& ContextOf(sqlite3_vfs* vfs) { return *static_cast<const Context*>(vfs->pAppData); }

/// Opens for writing through the seam, before Unix opens it: a file that is made is made there.
Status OpenThroughSeam(FileSystem& files, OpenFile& file, int flags) {
  if ((flags & SQLITE_OPEN_READWRITE) == 0 || file.path.empty()) return OkStatus();
  const bool exists = files.Exists(file.path);
  if (!exists && (flags & SQLITE_OPEN_CREATE) == 0) return OkStatus();
  file.syncs_folder = !exists && (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) != 0;
  DRAFTMILL_ASSIGN_OR_RETURN(file.writable,
                             files.OpenForWriting(file.path, exists ? OpenMode::kOpenExisting : OpenMode::kCreate));
  return OkStatus();
}

int Open(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* memory, int flags, int* flags_out) {
  const Context& context = ContextOf(vfs);
  constexpr int kThroughSeam = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
  OpenFile* file = std::construct_at(static_cast<OpenFile*>(memory));
  file->files = context.files;
  // Temporary files live and die with the process.
  if (name != nullptr && (flags & kThroughSeam) != 0) file->path = name;
  if (const Status status = OpenThroughSeam(*context.files, *file, flags); !status.ok()) {
    std::destroy_at(file);
    memory->pMethods = nullptr;
    return CodeOf(status, SQLITE_CANTOPEN);
  }
  const int code = context.unix_vfs->xOpen(context.unix_vfs, name, Unix(memory), flags, flags_out);
  if (code != SQLITE_OK) {
    std::destroy_at(file);
    memory->pMethods = nullptr;
    return code;
  }
  memory->pMethods = &kMethods;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* path, int sync_folder) {
  FileSystem& files = *ContextOf(vfs).files;
  Status status = files.Remove(path);
  if (status.ok() && sync_folder != 0) status = files.SyncFolder(ParentPath(path));
  return CodeOf(status, SQLITE_IOERR_DELETE);
}

int Access(sqlite3_vfs* vfs, const char* path, int flags, int* result) {
  sqlite3_vfs* unix_vfs = ContextOf(vfs).unix_vfs;
  return unix_vfs->xAccess(unix_vfs, path, flags, result);
}

int FullPathname(sqlite3_vfs* vfs, const char* path, int size, char* full) {
  sqlite3_vfs* unix_vfs = ContextOf(vfs).unix_vfs;
  return unix_vfs->xFullPathname(unix_vfs, path, size, full);
}

}  // namespace

struct SqliteOverFileSystem::Registration {
  Context context;
  sqlite3_vfs vfs{};
};

SqliteOverFileSystem::SqliteOverFileSystem(FileSystem& files) : registration_(std::make_unique<Registration>()) {
  sqlite3_initialize();
  sqlite3_vfs* unix_vfs = sqlite3_vfs_find(nullptr);
  registration_->context = {&files, unix_vfs};
  sqlite3_vfs& vfs = registration_->vfs;
  vfs = *unix_vfs;  // randomness, sleep and time are those of Unix, which ask nothing of their first argument
  vfs.szOsFile = static_cast<int>(sizeof(OpenFile)) + unix_vfs->szOsFile;
  vfs.pNext = nullptr;
  vfs.zName = "draftmill-file-system";
  vfs.pAppData = &registration_->context;
  vfs.xOpen = &Open;
  vfs.xDelete = &Delete;
  vfs.xAccess = &Access;
  vfs.xFullPathname = &FullPathname;
  sqlite3_vfs_register(&vfs, 1);
}

SqliteOverFileSystem::~SqliteOverFileSystem() {
  sqlite3_vfs_register(registration_->context.unix_vfs, 1);
  sqlite3_vfs_unregister(&registration_->vfs);
}

}  // namespace draftmill

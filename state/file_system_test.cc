#include "state/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "state/direct_write.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

class FileSystemTest : public testing::Test {
 protected:
  std::string Path(std::string_view name) const { return JoinPath(folder_.path(), name); }

  TemporaryFolder folder_;
  FileSystem& files_ = RealFileSystem();
};

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(ParentPath("a/b/c"), "a/b");
  EXPECT_EQ(ParentPath("/a"), "/");
  EXPECT_EQ(ParentPath("a"), ".");
  EXPECT_EQ(ParentPath("a/b/"), "a");
  EXPECT_EQ(ParentPath("a/"), ".");
  EXPECT_EQ(ParentPath("/a//"), "/");
  EXPECT_EQ(ParentPath("/"), "/");
  EXPECT_EQ(WithoutTrailingSlash("a/b//"), "a/b");
  EXPECT_EQ(WithoutTrailingSlash("/"), "/");
}

TEST_F(FileSystemTest, WritesAndReadsBack) {
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "first").ok());
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "second").ok());
  const Result<std::string> back = files_.ReadAll(Path("a"));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, "second");
  EXPECT_FALSE(files_.Exists(Path("a.partial")));
}

TEST_F(FileSystemTest, ReadsFilesWhoseSizeIsNotStated) {
  const Result<std::string> status = files_.ReadAll("/proc/self/status");
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_NE(status->find("Pid:"), std::string::npos);
}

TEST_F(FileSystemTest, AFolderThatCannotBeMadeIsAnError) {
  for (const char* path : {"/proc/x", "/proc/x/y/z"}) EXPECT_FALSE(files_.MakeFolder(path).ok()) << path;
}

TEST_F(FileSystemTest, RefusesAFileLargerThanTheLimit) {
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "12345").ok());
  EXPECT_TRUE(files_.ReadAll(Path("a"), 5).ok());
  EXPECT_EQ(files_.ReadAll(Path("a"), 4).status().code(), StatusCode::kInvalidInput);
}

/// Large writes take another way than small ones; what stands beside them must not change, wherever they begin.
TEST_F(FileSystemTest, LargeWritesLeaveTheirNeighboursAlone) {
  constexpr std::int64_t kLarge = (std::int64_t{17} << 20) + 1234;
  for (const std::int64_t offset :
       {std::int64_t{0}, std::int64_t{4096}, std::int64_t{1}, std::int64_t{4095}, std::int64_t{5000}}) {
    for (const std::size_t shift : {0U, 1U, 64U, 512U}) {
      std::string content(static_cast<std::size_t>(kLarge) + shift, 'x');
      for (std::size_t i = shift; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 4096);
      const std::string_view large = std::string_view(content).substr(shift);
      const std::string path = Path("large");
      const auto file = files_.OpenForWriting(path, OpenMode::kCreate);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->WriteAt(0, Bytes(std::string(static_cast<std::size_t>(offset), 'a'))).ok());
      ASSERT_TRUE((*file)->WriteAt(offset + kLarge, Bytes("end")).ok());
      ASSERT_TRUE((*file)->WriteAt(offset, Bytes(large)).ok());
      ASSERT_TRUE((*file)->Sync().ok());
      ASSERT_TRUE((*file)->Close().ok());
      const Result<std::string> back = files_.ReadAll(path);
      ASSERT_TRUE(back.ok());
      const bool same = *back == std::string(static_cast<std::size_t>(offset), 'a') + std::string(large) + "end";
      EXPECT_TRUE(same) << "at " << offset << ", memory shifted by " << shift;
    }
  }
}

TEST_F(FileSystemTest, LargeWritesOfDifferentRangesMayRunAtOnce) {
  constexpr std::size_t kLarge = (std::size_t{16} << 20) + 100;
  const auto file = files_.OpenForWriting(Path("large"), OpenMode::kCreate);
  ASSERT_TRUE(file.ok());
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (std::size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const std::string part(kLarge, static_cast<char>('a' + i));
      if (!(*file)->WriteAt(static_cast<std::int64_t>(i * kLarge), Bytes(part)).ok()) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  const Result<std::string> back = files_.ReadAll(Path("large"));
  ASSERT_TRUE(back.ok());
  const bool same = *back == std::string(kLarge, 'a') + std::string(kLarge, 'b') + std::string(kLarge, 'c');
  EXPECT_TRUE(same);
}

TEST_F(FileSystemTest, DirectWritesWriteWholeBlocksOrSayThatTheyCannot) {
  const int descriptor = ::open(Path("direct").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(descriptor, 0);
  std::string content(std::size_t{32} << 20, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 17 + i / 4096);
  {
    DirectWriter direct(descriptor);
    const Result<bool> done = direct.Write(8192, Bytes(content));
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    const std::string back = *files_.ReadAll(Path("direct"));
    const bool same = back == std::string(8192, '\0') + content;
    EXPECT_TRUE(same || !*done) << "this file system has no direct I/O and yet wrote";
  }
  ::close(descriptor);
}

TEST_F(FileSystemTest, ReadAtStopsOnlyAtTheEnd) {
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "0123456789").ok());
  const auto file = files_.OpenForReading(Path("a"));
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> buffer(8);
  EXPECT_EQ(*(*file)->ReadAt(0, buffer), 8U);
  EXPECT_EQ(*(*file)->ReadAt(6, buffer), 4U);
  EXPECT_EQ(*(*file)->ReadAt(100, buffer), 0U);
  EXPECT_EQ(*(*file)->Size(), 10);
}

/// Interrupts this thread's system calls every other millisecond for as long as it lives.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action = {};
    action.sa_handler = [](int) {};  // without SA_RESTART: calls that can be interrupted are
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, &previous_);
    Every(2000);
  }
  ~Interruptions() {
    Every(0);
    sigaction(SIGALRM, &previous_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  static void Every(suseconds_t microseconds) {
    const itimerval interval{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &interval, nullptr);
  }

  struct sigaction previous_ = {};
};

TEST_F(FileSystemTest, AnInterruptedCallIsCompleted) {
  const Interruptions interruptions;
  const std::string content(std::size_t{24} << 20, 'i');
  for (int i = 0; i < 4; ++i) {
    auto file = files_.OpenForWriting(Path("interrupted"), OpenMode::kCreate);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_TRUE((*file)->Allocate(static_cast<std::int64_t>(content.size())).ok());
    EXPECT_TRUE((*file)->WriteAt(0, std::as_bytes(std::span(content))).ok());
    EXPECT_TRUE((*file)->Sync().ok());
    EXPECT_TRUE((*file)->Close().ok());
    const Result<std::string> read = files_.ReadAll(Path("interrupted"));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_TRUE(*read == content);
  }
}

TEST_F(FileSystemTest, OpenModesTreatWhatIsThereAsTheySay) {
  EXPECT_EQ(files_.OpenForWriting(Path("a"), OpenMode::kOpenExisting).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "content").ok());
  EXPECT_EQ(files_.OpenForWriting(Path("a"), OpenMode::kCreateNew).status().code(), StatusCode::kConflict);
  {
    const auto file = files_.OpenForWriting(Path("a"), OpenMode::kOpenExisting);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE((*file)->WriteAt(3, Bytes("fuse")).ok());
    EXPECT_TRUE((*file)->Close().ok());
  }
  EXPECT_EQ(*files_.ReadAll(Path("a")), "confuse");
  ASSERT_TRUE(files_.OpenForWriting(Path("a"), OpenMode::kCreate).ok());
  EXPECT_EQ(files_.Stat(Path("a"))->size_bytes, 0);
}

TEST_F(FileSystemTest, AllocatingKeepsTheSizeAndTruncatingChangesIt) {
  const auto file = files_.OpenForWriting(Path("a"), OpenMode::kCreateNew);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Allocate(1 << 20).ok());
  EXPECT_EQ(files_.Stat(Path("a"))->size_bytes, 0);
  EXPECT_TRUE((*file)->Truncate(1 << 20).ok());
  EXPECT_EQ(files_.Stat(Path("a"))->size_bytes, 1 << 20);
  EXPECT_TRUE((*file)->Sync().ok());
}

TEST_F(FileSystemTest, DifferentRangesMayBeWrittenAtOnce) {
  constexpr int kThreads = 4;
  constexpr std::size_t kRange = 1 << 16;
  const auto file = files_.OpenForWriting(Path("a"), OpenMode::kCreateNew);
  ASSERT_TRUE(file.ok());
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string text(kRange, static_cast<char>('a' + t));
      if (!(*file)->WriteAt(t * static_cast<std::int64_t>(kRange), Bytes(text)).ok()) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  const std::string content = *files_.ReadAll(Path("a"));
  ASSERT_EQ(content.size(), kThreads * kRange);
  for (std::size_t i = 0; i < content.size(); ++i) ASSERT_EQ(content[i], static_cast<char>('a' + i / kRange));
}

TEST_F(FileSystemTest, MakesAndRemovesTrees) {
  ASSERT_TRUE(files_.MakeFolder(Path("x/y/z")).ok());
  EXPECT_TRUE(files_.MakeFolder(Path("x/y/z")).ok());
  EXPECT_TRUE(files_.Stat(Path("x/y/z"))->is_folder);
  ASSERT_TRUE(files_.WriteAtomically(Path("outside"), "stays").ok());
  ASSERT_TRUE(files_.WriteAtomically(Path("x/file"), "goes").ok());
  EXPECT_FALSE(files_.MakeFolder(Path("x/file")).ok());
  EXPECT_FALSE(files_.MakeFolder(Path("x/file/below")).ok());
  ASSERT_EQ(::symlink(Path("outside").c_str(), Path("x/link").c_str()), 0);
  EXPECT_TRUE(files_.RemoveTree(Path("x")).ok());
  EXPECT_TRUE(files_.RemoveTree(Path("x")).ok());
  EXPECT_FALSE(files_.Exists(Path("x")));
  EXPECT_TRUE(files_.Exists(Path("outside")));
}

TEST_F(FileSystemTest, ListsByTheBytesOfTheNames) {
  for (const char* name : {"b", "a", "Z", "\xc3\xa4"}) ASSERT_TRUE(files_.WriteAtomically(Path(name), name).ok());
  ASSERT_TRUE(files_.MakeFolder(Path("folder")).ok());
  ASSERT_EQ(::symlink("nowhere", Path("dangling").c_str()), 0);
  const auto entries = files_.List(folder_.path());
  ASSERT_TRUE(entries.ok());
  std::vector<std::string> names;
  for (const FileInfo& entry : *entries) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"Z", "a", "b", "dangling", "folder", "\xc3\xa4"}));
  EXPECT_TRUE((*entries)[4].is_folder);
  EXPECT_EQ(files_.List(Path("missing")).status().code(), StatusCode::kNotFound);
}

TEST_F(FileSystemTest, RefusesToReadFoldersAndPipesWithoutHanging) {
  EXPECT_EQ(files_.OpenForReading(folder_.path()).status().code(), StatusCode::kInvalidInput);
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(files_.OpenForReading(Path("pipe")).status().code(), StatusCode::kInvalidInput);
}

TEST_F(FileSystemTest, RemovingNothingSucceeds) {
  EXPECT_TRUE(files_.Remove(Path("missing")).ok());
  EXPECT_EQ(files_.Stat(Path("missing")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_.Rename(Path("missing"), Path("b")).code(), StatusCode::kNotFound);
}

TEST_F(FileSystemTest, AFileMadeAnewLeavesItsOtherNamesAlone) {
  const auto write = [&](const std::string& text) {
    const auto file = files_.OpenForWriting(Path("a"), OpenMode::kCreate);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ASSERT_TRUE((*file)->WriteAt(0, Bytes(text)).ok());
    ASSERT_TRUE((*file)->Close().ok());
  };
  write("old");
  ASSERT_EQ(::link(Path("a").c_str(), Path("b").c_str()), 0);
  write("new");
  EXPECT_EQ(files_.ReadAll(Path("a")).value(), "new");
  EXPECT_EQ(files_.ReadAll(Path("b")).value(), "old");
}

TEST_F(FileSystemTest, TellsTheSpaceOfTheDisk) {
  const auto space = files_.Space(folder_.path());
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->total_bytes, 0);
  EXPECT_LE(space->free_bytes, space->total_bytes);
}

TEST_F(FileSystemTest, AFullDeviceIsAFullDisk) {
  const auto file = files_.OpenForWriting("/dev/full", OpenMode::kOpenExisting);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->WriteAt(0, Bytes("x")).code(), StatusCode::kDiskFull);
}

TEST(ClockTest, RunsForward) {
  const std::int64_t before = RealClock().MonotonicNs();
  EXPECT_LE(before, RealClock().MonotonicNs());
  EXPECT_GT(RealClock().UnixMs(), std::int64_t{1'600'000'000'000});
}

}  // namespace
}  // namespace draftmill

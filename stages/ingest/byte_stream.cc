#include "stages/ingest/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace draftmill {
namespace {

constexpr std::size_t kPackedBuffer = std::size_t{1} << 18;

/// The file's own bytes in order, hashed as they pass.
class PackedFile {
 public:
  PackedFile(std::unique_ptr<ReadableFile> file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Result<std::size_t> Read(std::span<std::byte> buffer) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t bytes, file_->ReadAt(offset_, buffer));
    hash_.Update(buffer.first(bytes));
    offset_ += static_cast<std::int64_t>(bytes);
    return bytes;
  }

  /// Bytes at the start without moving on.
  Result<std::size_t> Peek(std::span<std::byte> buffer) { return file_->ReadAt(0, buffer); }

  Result<Hash128> HashWhole() {
    std::vector<std::byte> buffer(kPackedBuffer);
    while (true) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t bytes, Read(buffer));
      if (bytes == 0) return hash_.Digest128();
    }
  }

  std::int64_t offset() const { return offset_; }
  const std::string& path() const { return path_; }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  std::int64_t offset_ = 0;
  StreamingHash hash_;
};

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(PackedFile file) : file_(std::move(file)) {}
  Result<std::size_t> Read(std::span<std::byte> buffer) override { return file_.Read(buffer); }
  std::int64_t packed_bytes() const override { return file_.offset(); }
  Result<Hash128> HashWholeFile() override { return file_.HashWhole(); }

 private:
  PackedFile file_;
};

/// What gzip and zstd share: a buffer of packed bytes and the words for a file that is cut or damaged.
class UnpackingStream : public ByteStream {
 public:
  explicit UnpackingStream(PackedFile file) : file_(std::move(file)), packed_(kPackedBuffer) {}
  std::int64_t packed_bytes() const override { return file_.offset(); }
  Result<Hash128> HashWholeFile() override { return file_.HashWhole(); }

 protected:
  /// Makes sure that there are packed bytes, unless the file has ended.
  Status Fill() {
    if (begin_ < end_ || at_end_) return OkStatus();
    DRAFTMILL_ASSIGN_OR_RETURN(end_, file_.Read(packed_));
    begin_ = 0;
    at_end_ = end_ == 0;
    return OkStatus();
  }

  Status Truncated(std::string_view what) const {
    return InvalidInput(file_.path() + ": the file ends inside a " + std::string(what) + ", at byte " +
                        std::to_string(file_.offset()) +
                        ": it was cut. Nothing of the run is harmed; copy the file again");
  }
  Status Damaged(std::string_view what, std::string_view why) const {
    const std::int64_t at = file_.offset() - static_cast<std::int64_t>(end_ - begin_);
    return InvalidInput(file_.path() + ": damaged " + std::string(what) + " near byte " + std::to_string(at) + " (" +
                        std::string(why) + "). Nothing of the run is harmed; copy the file again");
  }

  PackedFile file_;
  std::vector<std::byte> packed_;
  std::size_t begin_ = 0;  ///< packed_[begin_, end_) is not unpacked yet
  std::size_t end_ = 0;
  bool at_end_ = false;
};

class GzipStream : public UnpackingStream {
 public:
  explicit GzipStream(PackedFile file) : UnpackingStream(std::move(file)) {
    ready_ = inflateInit2(&inflater_, 15 + 16) == Z_OK;  // 16: gzip wrapping only
  }
  ~GzipStream() override {
    if (ready_) inflateEnd(&inflater_);
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  Result<std::size_t> Read(std::span<std::byte> buffer) override {
    if (!ready_) return OutOfMemory("unpacking " + file_.path());
    while (true) {
      DRAFTMILL_RETURN_IF_ERROR(Fill());
      if (between_members_ && SkipPadding()) continue;
      if (at_end_) {
        if (between_members_) return std::size_t{0};
        return Truncated("gzip member");
      }
      DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t bytes, Inflate(buffer));
      if (bytes > 0) return bytes;
    }
  }

 private:
  /// Zero bytes after a member are padding (tapes, block devices); true where a whole buffer of them was passed over.
  bool SkipPadding() {
    if (!had_member_) return false;
    while (begin_ < end_ && packed_[begin_] == std::byte{0}) ++begin_;
    return begin_ == end_ && !at_end_;
  }

  Result<std::size_t> Inflate(std::span<std::byte> buffer) {
    between_members_ = false;
    inflater_.next_in = reinterpret_cast<Bytef*>(packed_.data() + begin_);
    inflater_.avail_in = static_cast<uInt>(end_ - begin_);
    inflater_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    inflater_.avail_out = static_cast<uInt>(std::min<std::size_t>(buffer.size(), std::size_t{1} << 30));
    const uInt room = inflater_.avail_out;
    const int code = inflate(&inflater_, Z_NO_FLUSH);
    begin_ = end_ - inflater_.avail_in;
    if (code == Z_STREAM_END) {
      between_members_ = true;
      had_member_ = true;
      inflateReset(&inflater_);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return Damaged("gzip data", inflater_.msg != nullptr ? inflater_.msg : "zlib error " + std::to_string(code));
    }
    return static_cast<std::size_t>(room - inflater_.avail_out);
  }

  z_stream inflater_{};
  bool ready_ = false;
  bool between_members_ = true;
  bool had_member_ = false;
};

class ZstdStream : public UnpackingStream {
 public:
  explicit ZstdStream(PackedFile file) : UnpackingStream(std::move(file)), context_(ZSTD_createDCtx()) {}
  ~ZstdStream() override { ZSTD_freeDCtx(context_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  Result<std::size_t> Read(std::span<std::byte> buffer) override {
    if (context_ == nullptr) return OutOfMemory("unpacking " + file_.path());
    while (true) {
      DRAFTMILL_RETURN_IF_ERROR(Fill());
      if (at_end_ && between_frames_) return std::size_t{0};
      ZSTD_inBuffer input{packed_.data(), end_, begin_};
      ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
      const std::size_t code = ZSTD_decompressStream(context_, &output, &input);
      begin_ = input.pos;
      if (ZSTD_isError(code) != 0) return Damaged("zstd data", ZSTD_getErrorName(code));
      between_frames_ = code == 0;
      if (output.pos > 0) return output.pos;
      if (at_end_ && !between_frames_) return Truncated("zstd frame");
    }
  }

 private:
  ZSTD_DCtx* context_;
  bool between_frames_ = true;
};

bool StartsWith(std::string_view start, std::string_view magic) { return start.substr(0, magic.size()) == magic; }

bool IsGzip(std::string_view start) { return StartsWith(start, "\x1F\x8B"); }

bool IsZstd(std::string_view start) {
  const bool is_skippable = start.size() >= 4 && (static_cast<unsigned char>(start[0]) & 0xF0U) == 0x50U &&
                            start.substr(1, 3) == "\x2A\x4D\x18";
  return is_skippable || StartsWith(start, "\x28\xB5\x2F\xFD");
}

/// "UTF-16", "UTF-32" or nothing. JSON in either starts with a mark, or with an ASCII character beside zero bytes.
std::string_view WideEncoding(std::string_view start) {
  using std::string_view_literals::operator""sv;
  if (StartsWith(start, "\xFF\xFE\0\0"sv) || StartsWith(start, "\0\0\xFE\xFF"sv)) return "UTF-32";
  if (StartsWith(start, "\xFF\xFE") || StartsWith(start, "\xFE\xFF")) return "UTF-16";
  if (start.size() < 2 || (start[0] == '\0') == (start[1] == '\0')) return {};
  return "UTF-16";
}

Status RefuseByContent(const std::string& path, std::string_view start) {
  if (start.empty()) {
    return InvalidInput(path + ": the file is empty. Take it out of ingest.sources, or write it again");
  }
  if (StartsWith(start, "PAR1")) {
    return Unsupported(path + ": Parquet is not read. Convert it: tools/parquet_to_jsonl.py " + path +
                       " (writes .jsonl.zst)");
  }
  if (path.ends_with(".gz") && !IsGzip(start))
    return InvalidInput(path + ": the name says gzip, but the content is not");
  if (path.ends_with(".zst") && !IsZstd(start))
    return InvalidInput(path + ": the name says zstd, but the content is not");
  const std::string_view wide = WideEncoding(start);
  if (!wide.empty()) {
    const std::string name(wide);
    return Unsupported(path + ": the file is " + name + "; rows must be UTF-8. Convert it: iconv -f " + name +
                       " -t UTF-8");
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<ByteStream>> ByteStream::Open(FileSystem& file_system, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, file_system.OpenForReading(path));
  PackedFile packed(std::move(file), path);
  std::byte first[8];
  DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t bytes, packed.Peek(first));
  const std::string_view start(reinterpret_cast<const char*>(first), bytes);
  DRAFTMILL_RETURN_IF_ERROR(RefuseByContent(path, start));
  std::unique_ptr<ByteStream> stream;
  if (IsGzip(start)) {
    stream = std::make_unique<GzipStream>(std::move(packed));
  } else if (IsZstd(start)) {
    stream = std::make_unique<ZstdStream>(std::move(packed));
  } else {
    stream = std::make_unique<PlainStream>(std::move(packed));
  }
  return stream;
}

}  // namespace draftmill

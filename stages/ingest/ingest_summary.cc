#include "stages/ingest/ingest_summary.h"

#include <limits>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace draftmill {
namespace {

constexpr int kFormatVersion = 1;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;

/// The first epoch is not written.
void AddEpoch(std::int32_t epoch, json::Object& object) {
  if (epoch > 0) object.emplace_back("epoch", epoch);
}

json::Value SourceAsJson(const SourceSummary& source) {
  json::Object object;
  // Neither times nor inodes: the file holds facts of the data, and so is the same bytes for the same data.
  object.emplace_back("path", IsValidUtf8(source.path) ? source.path : std::string("(not UTF-8)"));
  object.emplace_back("format", source.format);
  object.emplace_back("bytes", source.bytes);
  object.emplace_back("content_hash", ToHex(source.content_hash));
  object.emplace_back("rows", source.rows);
  object.emplace_back("kept", source.kept);
  object.emplace_back("duplicates", source.duplicates);
  object.emplace_back("rejected", source.rejected);
  object.emplace_back("not_taken", source.not_taken);
  AddEpoch(source.epoch, object);
  return json::Value(std::move(object));
}

json::Value ChunkAsJson(const IngestedChunkFacts& chunk) {
  json::Object object;
  object.emplace_back("chunk", chunk.chunk);
  object.emplace_back("first_sample", chunk.first_sample);
  object.emplace_back("rows", chunk.rows);
  object.emplace_back("bytes", chunk.bytes);
  object.emplace_back("digest", ToHex(chunk.digest));
  AddEpoch(chunk.epoch, object);
  return json::Value(std::move(object));
}

/// Reads fields of one object and remembers the first that is missing or of a wrong type.
class Fields {
 public:
  explicit Fields(const json::Value& object) : object_(object) {}

  std::int64_t Integer(std::string_view key) {
    const json::Value* value = object_.Find(key);
    if (value != nullptr && value->is_integer()) return value->as_integer();
    Miss(key);
    return 0;
  }
  std::string Text(std::string_view key) {
    const json::Value* value = object_.Find(key);
    if (value != nullptr && value->is_string()) return value->as_string();
    Miss(key);
    return {};
  }
  /// The member `epoch`, 0 where there is none.
  std::int32_t Epoch() {
    if (object_.Find("epoch") == nullptr) return 0;
    const std::int64_t epoch = Integer("epoch");
    if (epoch < 0 || epoch > std::numeric_limits<std::int32_t>::max()) Miss("epoch");
    return static_cast<std::int32_t>(epoch);
  }
  Hash128 Hash(std::string_view key) {
    const Result<Hash128> hash = Hash128FromHex(Text(key));
    if (hash.ok()) return *hash;
    Miss(key);
    return {};
  }
  Status status() const { return missing_.empty() ? OkStatus() : Corrupt("no proper `" + missing_ + "`"); }

 private:
  void Miss(std::string_view key) {
    if (missing_.empty()) missing_ = key;
  }

  const json::Value& object_;
  std::string missing_;
};

Result<SourceSummary> SourceFromJson(const json::Value& object) {
  Fields fields(object);
  SourceSummary source;
  source.path = fields.Text("path");
  source.format = fields.Text("format");
  source.bytes = fields.Integer("bytes");
  source.content_hash = fields.Hash("content_hash");
  source.rows = fields.Integer("rows");
  source.kept = fields.Integer("kept");
  source.duplicates = fields.Integer("duplicates");
  source.rejected = fields.Integer("rejected");
  source.not_taken = fields.Integer("not_taken");
  source.epoch = fields.Epoch();
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  return source;
}

Result<IngestedChunkFacts> ChunkFromJson(const json::Value& object) {
  Fields fields(object);
  IngestedChunkFacts chunk;
  const std::int64_t number = fields.Integer("chunk");
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max()) return Corrupt("a chunk's number out of range");
  chunk.chunk = static_cast<std::int32_t>(number);
  chunk.first_sample = fields.Integer("first_sample");
  chunk.rows = fields.Integer("rows");
  chunk.bytes = fields.Integer("bytes");
  chunk.digest = fields.Hash("digest");
  chunk.epoch = fields.Epoch();
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  return chunk;
}

Result<IngestSummary> SummaryFromJson(const json::Value& index) {
  Fields fields(index);
  const std::int64_t version = fields.Integer("format_version");
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  if (version != kFormatVersion) return Unsupported("format_version " + std::to_string(version) + " is not known");
  const json::Value* sources = index.Find("sources");
  const json::Value* chunks = index.Find("chunks");
  if (sources == nullptr || !sources->is_array()) return Corrupt("no list `sources`");
  if (chunks == nullptr || !chunks->is_array()) return Corrupt("no list `chunks`");
  IngestSummary summary;
  for (const json::Value& object : sources->as_array()) {
    DRAFTMILL_ASSIGN_OR_RETURN(SourceSummary source, SourceFromJson(object));
    summary.sources.push_back(std::move(source));
  }
  for (const json::Value& object : chunks->as_array()) {
    DRAFTMILL_ASSIGN_OR_RETURN(const IngestedChunkFacts chunk, ChunkFromJson(object));
    summary.chunks.push_back(chunk);
  }
  return summary;
}

}  // namespace

std::string IngestSummaryPath(const std::string& work_folder) {
  return JoinPath(IngestedFolder(work_folder), "index.json");
}

Status WriteIngestSummary(FileSystem& file_system, const std::string& work_folder, const IngestSummary& summary) {
  json::Array sources;
  for (const SourceSummary& source : summary.sources) sources.push_back(SourceAsJson(source));
  json::Array chunks;
  for (const IngestedChunkFacts& chunk : summary.chunks) chunks.push_back(ChunkAsJson(chunk));
  json::Object index;
  index.emplace_back("format_version", kFormatVersion);
  index.emplace_back("sources", std::move(sources));
  index.emplace_back("chunks", std::move(chunks));
  const std::string text = json::Write(json::Value(std::move(index)), json::Style::kPretty) + "\n";
  return file_system.WriteAtomically(IngestSummaryPath(work_folder), text);
}

Result<IngestSummary> ReadIngestSummary(FileSystem& file_system, const std::string& work_folder) {
  const std::string path = IngestSummaryPath(work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, file_system.ReadAll(path, kMaxBytes));
  const Result<json::Value> index = json::Parse(text);
  if (!index.ok()) return Corrupt(path + ": " + index.status().message());
  return SummaryFromJson(*index).WithContext(path);
}

}  // namespace draftmill

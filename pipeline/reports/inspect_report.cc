#include "pipeline/reports/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "formats/corpus_chunk.h"
#include "formats/manifest.h"
#include "formats/shard_reader.h"
#include "kernels/bfloat16.h"
#include "pipeline/reports/facts_text.h"
#include "stages/ingest/ingested_rows.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kPlain = "\x1b[0m";

json::Value SourceFacts(const std::vector<SourceRecord>& sources) {
  json::Array list;
  for (const SourceRecord& source : sources) {
    list.push_back(json::Object{{"file", source.path},
                                {"format", source.format},
                                {"bytes", source.bytes},
                                {"rows", source.rows},
                                {"kept", source.kept},
                                {"duplicates", source.duplicates},
                                {"rejected", source.rejected},
                                {"not_taken", source.not_taken}});
  }
  return json::Value(std::move(list));
}

json::Value ChunkFacts(const std::vector<ChunkRecord>& chunks) {
  json::Array list;
  for (const ChunkRecord& chunk : chunks) {
    list.push_back(json::Object{{"chunk", chunk.chunk},
                                {"first_sample_id", chunk.first_sample},
                                {"rows", chunk.rows},
                                {"samples", chunk.samples},
                                {"tokens", chunk.tokens},
                                {"supervised_tokens", chunk.supervised_tokens},
                                {"batches", chunk.batches},
                                {"extracted_batches", chunk.extracted_batches},
                                {"shards", chunk.shards},
                                {"published_shards", chunk.published_shards},
                                {"published_bytes", chunk.published_bytes}});
  }
  return json::Value(std::move(list));
}

/// Mean over tokens of the L2 norm of one layer's state; "not finite" where there is a NaN or an infinity.
json::Value MeanNorm(const std::vector<std::uint16_t>& states, std::size_t slot, std::size_t extent,
                     std::size_t hidden_size) {
  double sum_of_norms = 0;
  const std::size_t tokens = states.size() / extent;
  for (std::size_t first = slot * hidden_size; first < states.size(); first += extent) {
    double sum_of_squares = 0;
    for (std::size_t i = 0; i < hidden_size; ++i) {
      const double value = ToFloat(Bf16{states[first + i]});
      sum_of_squares += value * value;
    }
    sum_of_norms += std::sqrt(sum_of_squares);
  }
  const double mean = tokens == 0 ? 0 : sum_of_norms / static_cast<double>(tokens);
  return std::isfinite(mean) ? json::Value(mean) : json::Value("not finite");
}

/// Which x_k stands in each slot of hidden_states, by the shard's own metadata.
std::vector<std::string> LayerNames(const ShardReader& shard) {
  std::vector<std::string> names;
  for (const auto& [key, value] : shard.metadata()) {
    const Result<json::Value> layers = key == "layers" ? json::Parse(value) : Result<json::Value>(json::Value());
    if (!layers.ok() || !layers->is_array()) continue;
    for (const json::Value& layer : layers->as_array()) names.push_back("x_" + json::Write(layer));
  }
  names.resize(static_cast<std::size_t>(shard.contents().num_layers), "unnamed");
  return names;
}

/// {"x_2": 61.3, ...} of one sample.
Result<json::Object> MeanNorms(ShardReader& shard, std::int64_t sample) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::uint16_t> states, shard.ReadStates(sample));
  const auto hidden_size = static_cast<std::size_t>(shard.contents().hidden_size);
  const std::vector<std::string> names = LayerNames(shard);
  json::Object norms;
  for (std::size_t slot = 0; slot < names.size(); ++slot) {
    norms.emplace_back(names[slot], MeanNorm(states, slot, names.size() * hidden_size, hidden_size));
  }
  return norms;
}

json::Value ShardSampleFacts(const ShardContents& contents, std::int64_t sample) {
  const auto index = static_cast<std::size_t>(sample);
  const auto first = static_cast<std::size_t>(contents.cu_seqlens[index]);
  const auto end = static_cast<std::size_t>(contents.cu_seqlens[index + 1]);
  std::int64_t supervised = 0;
  for (std::size_t token = first; token < end; ++token) supervised += contents.loss_mask[token];
  const auto batch = std::upper_bound(contents.batch_offsets.begin(), contents.batch_offsets.end(), sample);
  return json::Object{{"sample_id", contents.sample_id[index]},
                      {"variant", contents.variant[index]},
                      {"batch_in_shard", static_cast<std::int64_t>(batch - contents.batch_offsets.begin()) - 1},
                      {"tokens", static_cast<std::int64_t>(end - first)},
                      {"supervised_tokens", supervised},
                      {"state", contents.sample_state[index] == 0 ? "good" : "quarantined"},
                      {"checksum", ToHex(contents.checksum[index])}};
}

json::Value PlaceFacts(const SamplePlace& place, const std::string& file) {
  json::Object facts = {{"sample_id", place.sample_id},
                        {"variant", place.variant},
                        {"stage", place.stage},
                        {"file", file},
                        {"row", place.row},
                        {"line", place.line},
                        {"byte_offset", place.byte_offset},
                        {"chunk", place.chunk}};
  const auto add = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) facts.emplace_back(name, *value);
  };
  add("batch", place.batch);
  add("block", place.block);
  add("shard", place.shard);
  add("position", place.position);
  add("tokens", place.tokens);
  add("supervised_tokens", place.supervised_tokens);
  add("last_supervised_message", place.turn);
  if (!place.file.empty()) facts.emplace_back("shard_file", place.file);
  if (!place.failed_in.empty()) {
    facts.emplace_back("failed_in", place.failed_in);
    facts.emplace_back("reason", place.reason);
  }
  return json::Value(std::move(facts));
}

/// The mean norms of a sample's states, where its shard is published.
Status AddNorms(FileSystem& files, const std::string& work_folder, const SamplePlace& place, json::Value& facts) {
  if (place.stage == "discarded") facts.Set("states_missing", DiscardedShardsNote(1));
  if (place.file.empty()) return OkStatus();
  Result<ShardReader> shard = ShardReader::Open(files, JoinPath(work_folder, place.file));
  if (!shard.ok()) {
    facts.Set("states_missing", shard.status().message());
    return OkStatus();
  }
  for (std::int64_t sample = 0; sample < shard->contents().samples(); ++sample) {
    if (shard->contents().key(sample) != SampleKey{place.sample_id, static_cast<std::int32_t>(place.variant)}) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(json::Object norms, MeanNorms(*shard, sample));
    facts.Set("mean_norms", std::move(norms));
  }
  return OkStatus();
}

/// Whether the database says that the shard's file was deleted on purpose. A shard may be looked at without a database.
bool IsDiscarded(FileSystem& files, const std::string& work_folder, const ShardName& name) {
  Result<StateReader> state = StateReader::Open(work_folder, files);
  if (!state.ok()) return false;
  const Result<std::vector<ShardRecord>> shards = state->Shards(name.chunk);
  return shards.ok() && std::any_of(shards->begin(), shards->end(), [&](const ShardRecord& shard) {
           return shard.shard == name.shard && shard.state == ShardState::kDiscarded;
         });
}

std::vector<InspectedToken> TokensOf(const TokenizedChunk& chunk, const SampleKey& key,
                                     const TokenBytesFunction& token_bytes) {
  std::vector<InspectedToken> tokens;
  for (std::size_t i = 0; i < chunk.sample_id.size(); ++i) {
    if (SampleKey{chunk.sample_id[i], chunk.variant[i]} != key) continue;
    for (auto t = static_cast<std::size_t>(chunk.cu_seqlens[i]); t < static_cast<std::size_t>(chunk.cu_seqlens[i + 1]);
         ++t) {
      const std::int32_t id = chunk.input_ids[t];
      tokens.push_back({id, chunk.loss_mask[t] != 0, token_bytes ? token_bytes(id) : std::string()});
    }
  }
  return tokens;
}

/// Text that does nothing to a terminal: C0 and C1 controls but line breaks and tabs are written as \xNN.
std::string Harmless(std::string_view text, bool one_line) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (byte == '\n' && one_line) {
      shown += "\\n";
    } else if (is_c1) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

struct Segment {
  std::string text;
  bool supervised = false;
};

std::vector<Segment> SegmentsOf(const std::vector<InspectedToken>& tokens) {
  std::vector<Segment> segments;
  for (const InspectedToken& token : tokens) {
    if (segments.empty() || segments.back().supervised != token.supervised) segments.push_back({"", token.supervised});
    segments.back().text += token.bytes;
  }
  for (Segment& segment : segments) segment.text = RepairedUtf8(segment.text);
  return segments;
}

std::string Marked(const std::string& text, bool supervised, bool colours) {
  if (!supervised) return text;
  if (colours) return std::string(kGreen) + text + std::string(kPlain);
  return "\u27E6" + text + "\u27E7";
}

std::string TokenLines(const std::vector<InspectedToken>& tokens, bool colours) {
  std::string lines;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string text = Harmless(RepairedUtf8(tokens[i].bytes), true);
    lines += fmt::format("{:>6} {:>8}  {}  {}\n", i, tokens[i].id, tokens[i].supervised ? "supervised" : "          ",
                         colours ? Marked(text, tokens[i].supervised, true) : text);
  }
  return lines;
}

bool HasText(const InspectedSample& sample) {
  return std::any_of(sample.tokens.begin(), sample.tokens.end(),
                     [](const InspectedToken& token) { return !token.bytes.empty(); });
}

}  // namespace

Result<json::Value> InspectWorkFolder(FileSystem& files, const std::string& work_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SourceRecord> sources, state.Sources());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardStateCount discarded, state.DiscardedShards());
  json::Object facts = {{"work", work_folder}};
  if (discarded.shards > 0) facts.emplace_back("discarded_shards", DiscardedShardsNote(discarded.shards));
  facts.emplace_back("sources", SourceFacts(sources));
  facts.emplace_back("chunks", ChunkFacts(chunks));
  return json::Value(std::move(facts));
}

Result<json::Value> InspectShard(FileSystem& files, const std::string& work_folder, const ShardName& name) {
  const std::string path = JoinPath(work_folder, ShardPath(name.chunk, name.shard));
  if (!files.Exists(path)) {
    if (IsDiscarded(files, work_folder, name))
      return NotFound("there is no " + path + " any more: " + DiscardedShardsNote(1));
    return NotFound("there is no " + path +
                    ". `draftmill inspect TARGET` lists the chunks, `draftmill verify TARGET` says " +
                    "what is missing");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::Open(files, path));
  const ShardContents& contents = shard.contents();
  json::Value metadata{json::Object{}};
  for (const auto& [key, value] : shard.metadata()) metadata.Set(key, value);
  const std::int64_t stride =
      std::max<std::int64_t>(1, (contents.samples() + kSamplesWithNorms - 1) / kSamplesWithNorms);
  json::Array samples;
  json::Array norms;
  for (std::int64_t sample = 0; sample < contents.samples(); ++sample) {
    samples.push_back(ShardSampleFacts(contents, sample));
    if (sample % stride != 0) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(json::Object by_layer, MeanNorms(shard, sample));
    json::Object row = {{"sample_id", contents.key(sample).sample_id}, {"variant", contents.key(sample).variant}};
    row.insert(row.end(), by_layer.begin(), by_layer.end());
    norms.push_back(std::move(row));
  }
  return json::Value(json::Object{{"file", path},
                                  {"bytes", shard.file_bytes()},
                                  {"tokens", contents.tokens()},
                                  {"batches", contents.batches()},
                                  {"kept_layers", contents.num_layers},
                                  {"hidden_size", contents.hidden_size},
                                  {"metadata", std::move(metadata)},
                                  {"samples", std::move(samples)},
                                  {"mean_norms", std::move(norms)}});
}

Result<std::vector<InspectedSample>> InspectSample(FileSystem& files, const std::string& work_folder,
                                                   const SampleName& name, const TokenBytesFunction& token_bytes) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SourceRecord> sources, state.Sources());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SamplePlace> places, state.FindSample(name.sample_id));
  const auto chunk_number = static_cast<std::int32_t>(places.empty() ? 0 : places.front().chunk);
  const auto rows = ReadIngestedChunk(files, work_folder, chunk_number);
  const auto corpus = ReadCorpusChunk(files, work_folder, chunk_number);
  if (!corpus.ok() && corpus.status().code() != StatusCode::kNotFound) return corpus.status();
  std::vector<InspectedSample> samples;
  for (const SamplePlace& place : places) {
    if (name.variant && place.variant != *name.variant) continue;
    const auto source =
        std::find_if(sources.begin(), sources.end(), [&](const SourceRecord& s) { return s.source == place.source; });
    InspectedSample sample{
        .facts = PlaceFacts(place, source == sources.end() ? "" : source->path), .conversation = {}, .tokens = {}};
    if (!rows.ok()) sample.facts.Set("conversation_missing", rows.status().message());
    for (const IngestedRow& row : rows.ok() ? rows->rows : std::vector<IngestedRow>()) {
      if (row.sample_id == place.sample_id) sample.conversation = row.conversation;
    }
    if (corpus.ok()) {
      sample.tokens = TokensOf(corpus->chunk, {place.sample_id, static_cast<std::int32_t>(place.variant)}, token_bytes);
    }
    DRAFTMILL_RETURN_IF_ERROR(AddNorms(files, work_folder, place, sample.facts));
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) {
    return NotFound("conversation " + std::to_string(name.sample_id) + " has no variant " +
                    std::to_string(name.variant.value_or(0)) + "; its variants are 0 to " +
                    std::to_string(places.empty() ? 0 : places.back().variant));
  }
  return samples;
}

std::string SampleAsText(const InspectedSample& sample, const SampleStyle& style) {
  std::string text = FactsAsText(sample.facts) + "\n";
  if (sample.tokens.empty() || (!HasText(sample) && !style.ids)) {
    return text + Harmless(json::Write(sample.conversation, json::Style::kPretty), false) + "\n";
  }
  if (style.ids) return text + TokenLines(sample.tokens, style.colours);
  for (const Segment& segment : SegmentsOf(sample.tokens)) {
    text += Marked(Harmless(segment.text, false), segment.supervised, style.colours);
  }
  return text + "\n";
}

json::Value SampleAsJson(const InspectedSample& sample) {
  json::Value value = sample.facts;
  value.Set("conversation", sample.conversation);
  json::Array text;
  for (const Segment& segment : SegmentsOf(sample.tokens)) {
    text.push_back(json::Object{{"text", segment.text}, {"supervised", segment.supervised}});
  }
  json::Array ids;
  json::Array mask;
  for (const InspectedToken& token : sample.tokens) {
    ids.emplace_back(token.id);
    mask.emplace_back(token.supervised ? 1 : 0);
  }
  if (HasText(sample)) value.Set("text", std::move(text));
  value.Set("input_ids", std::move(ids));
  value.Set("loss_mask", std::move(mask));
  return value;
}

}  // namespace draftmill

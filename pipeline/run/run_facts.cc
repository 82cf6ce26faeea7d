#include "pipeline/run/run_facts.h"

#include <string_view>
#include <utility>

#include "base/json.h"
#include "pipeline/config/config.h"

namespace draftmill {
namespace {

constexpr std::int64_t kMaxRunFileBytes = std::int64_t{64} << 20;

std::int64_t IntegerOf(const json::Value* object, std::string_view name) {
  const json::Value* value = object == nullptr ? nullptr : object->Find(name);
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

Result<Fingerprint> FingerprintOf(const json::Value& stage) {
  const json::Value* parts = stage.Find("parts");
  const json::Value* hash = stage.Find("hash");
  if (parts == nullptr || !parts->is_object() || hash == nullptr || !hash->is_string())
    return Corrupt("no `parts` or `hash`");
  Fingerprint fingerprint;
  for (const auto& [name, value] : parts->as_object()) {
    if (!value.is_string()) return Corrupt("the part `" + name + "` is no text");
    fingerprint.Add(name, value.as_string());
  }
  if (fingerprint.hash() != hash->as_string()) return Corrupt("its hash is not that of its parts");
  return fingerprint;
}

}  // namespace

Result<RunFacts> ReadRunFacts(FileSystem& files, const std::string& work_folder) {
  const std::string path = JoinPath(work_folder, kRunFactsName);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, files.ReadAll(path, kMaxRunFileBytes));
  const Result<json::Value> facts = json::Parse(text);
  if (!facts.ok()) return Corrupt(path + ": " + facts.status().message());
  const json::Value* stages = facts->Find("fingerprints");
  if (stages == nullptr || !stages->is_object()) return Corrupt(path + ": no `fingerprints`");
  RunFacts run;
  for (const auto& [name, stage] : stages->as_object()) {
    Result<Fingerprint> fingerprint = FingerprintOf(stage);
    if (!fingerprint.ok()) return Corrupt(path + ": fingerprint of " + name + ": " + fingerprint.status().message());
    run.fingerprints.emplace(name, std::move(fingerprint).value());
  }
  run.plan.batch_tokens = IntegerOf(facts->Find("plan"), "batch_tokens");
  run.plan.block_tokens = IntegerOf(facts->Find("plan"), "block_tokens");
  return run;
}

}  // namespace draftmill

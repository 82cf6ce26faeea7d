// A folder of a vocabulary map from anywhere: refused, or a map whose target ids ascend within the vocabulary. The
// first byte is the number of places, the next two are that of report.json's bytes; d2t.npy and t2d.npy follow it. What
// they hold goes behind headers that fit, so that the values are what is tried (npy_fuzz tries the headers).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "formats/npy.h"
#include "stages/vocab_map/vocab_files.h"
#include "stages/vocab_map/vocab_import.h"
#include "state/temporary_folder.h"

namespace {

constexpr std::int64_t kVocabRows = 64;

void WriteFile(const std::string& path, std::string_view content) { std::ofstream(path, std::ios::binary) << content; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const draftmill::TemporaryFolder folder;
  static const std::string vocab = folder.path() + "/vocab";
  static const bool is_made = draftmill::RealFileSystem().MakeFolder(vocab).ok();
  if (!is_made || size < 3) return 0;
  const std::size_t places = data[0] % (kVocabRows + 1);
  std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::string_view report = rest.substr(0, data[1] + 256U * data[2]);
  rest.remove_prefix(report.size());
  std::vector<std::int64_t> d2t(places);
  const std::size_t d2t_bytes = std::min(places * sizeof(std::int64_t), rest.size());
  if (d2t_bytes > 0) std::memcpy(d2t.data(), rest.data(), d2t_bytes);
  rest.remove_prefix(d2t_bytes);
  std::vector<std::uint8_t> t2d(rest.begin(), rest.end());

  WriteFile(vocab + "/report.json", report);
  WriteFile(vocab + "/d2t.npy", draftmill::NpyOfInt64(d2t));
  WriteFile(vocab + "/t2d.npy", draftmill::NpyOfBool(t2d));
  WriteFile(vocab + "/token_freq.npy", draftmill::NpyOfInt64(std::vector<std::int64_t>(kVocabRows)));
  draftmill::FileSystem& files = draftmill::RealFileSystem();
  for (const std::string& path : {vocab, vocab + "/d2t.npy"}) {
    const auto imported = draftmill::ReadVocabImport(files, path, static_cast<std::int64_t>(places), kVocabRows);
    if (!imported.ok()) continue;
    std::int64_t last = -1;
    for (std::size_t i = 0; i < imported->d2t.size(); ++i) {
      const std::int64_t target = static_cast<std::int64_t>(i) + imported->d2t[i];
      if (target <= last || target >= kVocabRows) std::abort();
      last = target;
    }
  }
  static_cast<void>(draftmill::ReadVocab(files, folder.path()).ok());
  return 0;
}

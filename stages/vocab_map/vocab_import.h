// A vocabulary map that was made elsewhere and is taken as it is: `vocab_map.import`.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ImportedVocab imported, ReadVocabImport(files, "d2t.npy", 32000, 151936));
//   DRAFTMILL_RETURN_IF_ERROR(CheckBinding(imported, mask_rule, corpus_digest));   // as soon as these are known
//
// A d2t.npy alone is bound to nothing: that it belongs to the drafter is for the user to know. A folder of draftmill
// says in report.json what it was made from, and is refused for anything else. Errors: kInvalidConfig, naming the file
// and what does not fit; kNotFound. Untrusted input, bounded. No state; safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

struct ImportedVocab {
  std::string path;
  std::vector<std::int64_t> d2t;
  Hash128 content{};          ///< over d2t, for the stage's fingerprint
  std::string corpus_digest;  ///< what report.json binds it to; empty for a d2t.npy alone
  std::string mask_rule;      ///< likewise
};

/// Reads a map from a .npy file or a folder and checks it against `size` (D) and `vocab_rows` (V).
Result<ImportedVocab> ReadVocabImport(FileSystem& files, const std::string& path, std::int64_t size,
                                      std::int64_t vocab_rows);

/// Refuses a map that says it was made under another mask rule or from another corpus. An empty `corpus_digest` is not
/// known yet.
Status CheckBinding(const ImportedVocab& imported, const std::string& mask_rule, const std::string& corpus_digest);

}  // namespace draftmill

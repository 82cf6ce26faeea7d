// What tells the trainers' formats apart. One file a format: specforge_format.cc and so on; docs/exports.md has a page for
// each.
//
// A format says which conventions it can hold, which file a sample becomes, and which files describe them all. It knows
// nothing of threads, resuming or progress: export_run.h does the work. Formats must not keep what grows with the number
// of samples.
//
// Threads: FileOf is called from any thread at once; everything else from one, in the order Check, Begin, AddRow ..., Finish.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "exports/export_source.h"
#include "exports/output_files.h"
#include "exports/sample_file.h"
#include "exports/selection.h"

namespace draftmill {

/// How much an export holds.
struct ExportCounts {
  std::int64_t samples = 0;
  std::int64_t train_samples = 0;
  std::int64_t eval_samples = 0;
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t bytes = 0;  ///< of the samples' files, and at the end of all files
};

/// What a format is made with.
struct FormatContext {
  const ExportSource* source = nullptr;
  const Selection* selection = nullptr;
  /// The bytes of a token, where a tokenizer could be loaded; else empty.
  std::function<std::string(std::int32_t)> token_bytes;
};

/// One sample of the corpus, for the files that describe all samples.
struct RowTokens {
  std::span<const std::int32_t> input_ids;
  std::span<const std::uint8_t> loss_mask;
};

class ExportFormat {
 public:
  virtual ~ExportFormat() = default;

  /// Raised by hand with each change of the bytes.
  virtual int version() const = 0;
  /// kUnsupported where the stored data cannot give the format's convention; the message says what would.
  virtual Status Check() const = 0;
  /// The file of a sample; nothing where samples have none.
  virtual std::optional<SampleFile> FileOf(const ExportRow& row) const = 0;

  /// The files beside the samples, in the folder of the export. Rows come in their order, dense.
  virtual Status Begin(OutputFiles& files, const ExportCounts& counts) = 0;
  virtual Status AddRow(const ExportRow& row, const RowTokens& tokens) = 0;
  virtual Status Finish() = 0;

  /// What the export took for granted and what must be set in the trainer, a line each. `folder` is where the export is.
  virtual std::vector<std::string> Advice(const std::string& folder, const ExportCounts& counts) const = 0;
};

/// The names of all formats, sorted.
std::vector<std::string_view> ExportFormatNames();
/// kInvalidConfig for an unknown name.
Result<std::unique_ptr<ExportFormat>> MakeExportFormat(const std::string& name, FormatContext context);

// Each makes one.
std::unique_ptr<ExportFormat> MakeJsonlFormat(FormatContext context);
std::unique_ptr<ExportFormat> MakeModeloptFormat(FormatContext context);
std::unique_ptr<ExportFormat> MakeSpecforgeFormat(FormatContext context);
std::unique_ptr<ExportFormat> MakeSpeculatorsFormat(FormatContext context);
std::unique_ptr<ExportFormat> MakeTorchspecFormat(FormatContext context);

}  // namespace draftmill

// A small run to be tried out in tests: a tiny model whose tokens are bytes, rows, a pipeline file, and an engine that
// stands in for the real one.
//
//   const ExampleRun example;                          // in a temporary folder, removed with the object
//   const RunReport report = example.Run({}, {.make_extractor = &MakeExampleExtractor});
//   example.Published()                                 // every published file with its bytes
//
// For tests only. Failures to write are the test's: they show as failures of the run. One thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/run/run.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/test_checkpoint.h"

namespace draftmill {

class ExampleRun {
 public:
  /// Lies in a new folder below `parent`.
  explicit ExampleRun(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
  ~ExampleRun();
  ExampleRun(const ExampleRun&) = delete;
  ExampleRun& operator=(const ExampleRun&) = delete;

  /// Writes rows.jsonl: `count` short conversations, the last answered with `last_answer`.
  void WriteRows(int count, const std::string& last_answer = "yes") const;
  /// Writes pipeline.yaml: chunks of `chunk_rows`, and `more` at the end.
  void WritePipeline(const std::string& more, int chunk_rows = 10) const;

  Config Load() const;
  RunReport Run(const RunRequest& request, const RunEnvironment& environment) const;

  /// Every published file with its bytes, by its path in the work folder.
  std::map<std::string, std::string> Published() const;
  /// Replaces a part of pipeline.yaml; the part must be there.
  void EditPipeline(const std::string& part, const std::string& replacement) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path work() const { return folder_ / "work"; }
  std::filesystem::path model() const { return model_.folder(); }

  static void Write(const std::filesystem::path& path, const std::string& text);
  static std::string Read(const std::filesystem::path& path);

 private:
  TestCheckpoint model_;
  std::filesystem::path folder_;
};

/// An engine whose states follow from the ids alone, without torch and at once. Every eighth conversation (sample_id 5,
/// 13, ...) comes out refused, as the real engine refuses NaN.
Result<std::unique_ptr<Extractor>> MakeExampleExtractor(const ExtractOptions& options);

/// The same engine where nothing is to be computed: it fails when it is asked for a block.
Result<std::unique_ptr<Extractor>> MakeIdleExtractor(const ExtractOptions& options);

/// The same engine, which notes the batches it computes and may be stopped.
class CountingExtractor final : public Extractor {
 public:
  /// Adds (chunk, batch) of each batch to `computed`; stops as on request once it holds `stop_after` of them.
  CountingExtractor(std::unique_ptr<Extractor> of, std::vector<std::pair<std::int32_t, std::int32_t>>& computed,
                    std::size_t stop_after)
      : of_(std::move(of)), computed_(computed), stop_after_(stop_after) {}
  Status ExtractBlock(const BlockRequest& request, const std::function<Status(BatchStates)>& emit,
                      const std::function<bool()>& should_stop) override;
  const ModelDescription& model() const override { return of_->model(); }
  std::string numerics_environment() const override { return of_->numerics_environment(); }
  std::string weights_digest() const override { return of_->weights_digest(); }

 private:
  const std::unique_ptr<Extractor> of_;
  std::vector<std::pair<std::int32_t, std::int32_t>>& computed_;
  const std::size_t stop_after_;
};

}  // namespace draftmill

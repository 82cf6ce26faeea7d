// Measures the extraction engine as a run uses it: random tokens of a realistic mix of lengths, states dropped or written
// as shards.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ExtractBenchReport report, MeasureExtract(request, progress));
//
// On a GPU the rate is also given as a share of the products that the card sustains, measured before and after; the share
// counts linear layers and causal attention, nothing else. Errors are the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/extract/extractor.h"

namespace draftmill {

/// What a sample may have at least and at most, in tokens.
inline constexpr std::int64_t kShortestBenchSample = 16;
inline constexpr std::int64_t kLongestBenchSample = std::int64_t{1} << 20;

struct ExtractBenchRequest {
  ExtractOptions options;
  double seconds = 30;              ///< of each measurement of the engine
  double disk_seconds = 0;          ///< of the one with shards, where it is to be another; 0: the same
  double product_seconds = 20;      ///< of each measurement of products
  std::int64_t mean_tokens = 1856;  ///< of a sample, nearly; in the bounds above
  std::int64_t max_tokens = 4096;   ///< of a sample; in the bounds above
  std::int64_t batch_tokens = 0;    ///< 0 for auto
  std::int64_t block_tokens = 0;    ///< 0 for auto
  std::string work_folder;          ///< where shards are written, and deleted once published; empty: to nowhere only
};

inline constexpr double kRateSpanSeconds = 15;

/// One measurement of the engine.
struct ExtractRate {
  double seconds = 0;
  std::int64_t tokens = 0;
  double processor_seconds = 0;  ///< of all threads of the program
  double flops = 0;              ///< of linear layers and causal attention, all in all
  /// Tokens that came in each whole span of kRateSpanSeconds: whether the rate holds.
  std::vector<std::int64_t> tokens_by_span;
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  double flops_per_second() const { return seconds > 0 ? flops / seconds : 0; }
};

struct ExtractBenchReport {
  std::string numerics_environment;
  std::int64_t devices = 1;  ///< GPUs that took part; 1 on the CPU
  std::int64_t batch_tokens = 0;
  std::int64_t block_tokens = 0;
  std::string decisions;         ///< what the engine said of weights and memory
  std::int64_t mean_tokens = 0;  ///< as drawn
  double load_seconds = 0;
  double product_flops_before = 0;  ///< per second, of one GPU; 0 on the CPU
  double product_flops_after = 0;
  double to_host_bytes = 0;  ///< per second
  double state_bytes_per_token = 0;
  double disk_bytes = 0;        ///< per second, of the disk alone; 0 where no folder was named
  double disk_bytes_after = 0;  ///< the same, after the engine has written to it
  ExtractRate nowhere;
  ExtractRate to_disk;  ///< seconds 0 where no folder was named

  /// The mean of both measurements of products, for all GPUs together.
  double product_flops() const {
    return static_cast<double>(devices) * (product_flops_before + product_flops_after) / 2;
  }
};

/// `progress` gets a line as each part begins.
Result<ExtractBenchReport> MeasureExtract(const ExtractBenchRequest& request,
                                          const std::function<void(const std::string&)>& progress);

/// The report under the names that `draftmill bench extract --json` prints.
json::Value ExtractBenchFacts(const ExtractBenchReport& report);

}  // namespace draftmill

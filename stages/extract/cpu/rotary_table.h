// Cosines and sines of rotary positions, multiplied and rounded as the model does it.
//
//   table.Grow(longest);
//   const float* cosines = table.cosines() + table.Row(position, tokens) * pairs;
//
// Longrope has two sets of frequencies and chooses by the length of the sequence (transformers: of the batch, which is
// the same where every sequence is alone). Both stand in one table, so that packed sequences of any lengths share it.
#pragma once

#include <cstdint>
#include <vector>

#include "stages/extract/model/rope.h"

namespace draftmill {

/// Grows to the longest sequence that was asked for. Not safe for growing while others read.
class RotaryTable {
 public:
  /// `rounds`: to bfloat16, as transformers casts them for a bfloat16 model.
  RotaryTable(const RopeConfig& rope, bool rounds);

  /// Makes the rows of sequences of up to `tokens` tokens available.
  void Grow(std::int64_t tokens);
  /// The row of a position in a sequence of so many tokens.
  std::int32_t Row(std::int64_t position, std::int64_t tokens) const {
    return static_cast<std::int32_t>(position + (IsLong(tokens) ? short_rows_ : 0));
  }
  std::int64_t rows() const { return rows_; }
  /// [rows, rotary_dims / 2]
  const float* cosines() const { return cosines_.data(); }
  const float* sines() const { return sines_.data(); }

 private:
  bool IsLong(std::int64_t tokens) const { return short_rows_ > 0 && tokens > short_rows_; }
  void Append(const std::vector<float>& frequencies, std::int64_t position);

  std::vector<float> frequencies_;
  std::vector<float> long_frequencies_;
  float factor_;
  bool rounds_;
  std::int64_t short_rows_;  ///< longrope: rows of sequences that are not long; they stand before the others
  std::int64_t rows_ = 0;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

}  // namespace draftmill

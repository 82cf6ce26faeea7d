// Cosines and sines of one kind of layer on a GPU.
//
// Grow waits for the copy; one object belongs to one thread and one GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/device_buffer.h"
#include "stages/extract/cpu/rotary_table.h"

namespace draftmill {

class DeviceRotary {
 public:
  explicit DeviceRotary(const RopeConfig& rope) : dims_(rope.rotary_dims), table_(rope, true) {}

  /// Makes the rows of samples of up to `longest` tokens available; see RotaryTable.
  Status Grow(std::int64_t longest) {
    table_.Grow(longest);
    const std::int64_t count = table_.rows() * dims_ / 2;
    DRAFTMILL_RETURN_IF_ERROR(cosines_.Grow(count));
    DRAFTMILL_RETURN_IF_ERROR(sines_.Grow(count));
    DRAFTMILL_RETURN_IF_ERROR(cosines_.Upload({table_.cosines(), static_cast<std::size_t>(count)}));
    return sines_.Upload({table_.sines(), static_cast<std::size_t>(count)});
  }

  std::int64_t dims() const { return dims_; }
  const RotaryTable& table() const { return table_; }
  const float* cosines() const { return cosines_.data(); }
  const float* sines() const { return sines_.data(); }

 private:
  const std::int64_t dims_;
  RotaryTable table_;
  cuda::DeviceBuffer<float> cosines_;
  cuda::DeviceBuffer<float> sines_;
};

}  // namespace draftmill

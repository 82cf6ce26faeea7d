// The pickle inside a torch archive: protocol 2, the opcodes that torch.save writes for tensors, numbers, text and dicts.
//
// Internal to formats/torch_archive.cc. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/torch_archive.h"

namespace draftmill::torch_archive {

/// The pickled value; appends each tensor it meets to `tensors`, whose place there is the number of its storage.
/// kInvalidInput for an element type that torch has no storage of here.
Result<std::string> PickleOf(const Value& value, std::vector<Tensor>& tensors);

}  // namespace draftmill::torch_archive

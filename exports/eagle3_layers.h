// What the trainers of EAGLE-3 agree on: some auxiliary layers and the final state, and how each names them.
//
// Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "exports/export_format.h"

namespace draftmill {

/// kUnsupported unless the final state x_n is kept last, with at least one layer before it, or exactly `aux_layers` of
/// them where that is not 0.
Status CheckEagle3Layers(const ExportSource& source, const std::string& format, std::int64_t aux_layers);
/// kUnsupported where post-norm states cannot be made.
Status CheckPostNorm(const ExportSource& source, const std::string& format);
/// kUnsupported where x_0 is among the auxiliary layers: a trainer that numbers the outputs of layers has no name for it.
Status CheckOutputNumbering(const ExportSource& source, const std::string& format);

/// The slots of the auxiliary layers: all but the last.
std::vector<std::int64_t> AuxSlots(const ExportSource& source);
std::int64_t FinalSlot(const ExportSource& source);
/// True for x_2, x_{n/2}, x_{n-3}, which every trainer takes without being told.
bool HasDefaultAuxLayers(const ExportSource& source);
/// "[1, 14, 26]": the auxiliary layers with `shift` added to each.
std::string AuxLayerList(const ExportSource& source, int shift);

/// {"d2t": int64 [D], "t2d": bool [V]} as a torch archive; the map must exist.
Result<std::string> VocabMappingArchive(const VocabMap& vocab);

}  // namespace draftmill

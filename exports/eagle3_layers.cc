#include "exports/eagle3_layers.h"

#include <span>

#include "formats/torch_archive.h"

namespace draftmill {
namespace {

std::string LayerNames(const ExportSource& source) {
  std::string names;
  for (const std::int32_t layer : source.layers()) names += (names.empty() ? "x_" : ", x_") + std::to_string(layer);
  return names;
}

}  // namespace

Status CheckEagle3Layers(const ExportSource& source, const std::string& format, std::int64_t aux_layers) {
  const auto& layers = source.layers();
  const std::string kept =
      "the run kept " + LayerNames(source) + " of a model with " + std::to_string(source.num_layers()) + " layers";
  const std::string remedy =
      ". Nothing was written. `extract.layers` chooses them; `extract.layers: eagle3` keeps what every trainer takes";
  if (layers.empty() || layers.back() != source.num_layers()) {
    return Unsupported(format + " needs the final state x_" + std::to_string(source.num_layers()) + ", and " + kept +
                       remedy);
  }
  const auto aux = static_cast<std::int64_t>(layers.size()) - 1;
  if (aux == 0 || (aux_layers != 0 && aux != aux_layers)) {
    return Unsupported(
        format + " needs " +
        (aux_layers == 0 ? "auxiliary layers" : "exactly " + std::to_string(aux_layers) + " auxiliary layers") +
        " beside the final state, and " + kept + remedy);
  }
  return OkStatus();
}

Status CheckPostNorm(const ExportSource& source, const std::string& format) {
  if (source.final_norm()) return OkStatus();
  return Unsupported(
      format +
      " needs the final state after the norm, and the run kept no final_norm.safetensors. Nothing was "
      "written. `draftmill run` on this work folder writes it from the model; no state is computed again");
}

Status CheckOutputNumbering(const ExportSource& source, const std::string& format) {
  if (source.layers().front() > 0) return OkStatus();
  return Unsupported(
      format +
      " numbers the outputs of layers and has no name for x_0, the embedding's output, which the run kept. "
      "Nothing was written. Leave 0 out of `extract.layers`");
}

std::vector<std::int64_t> AuxSlots(const ExportSource& source) {
  std::vector<std::int64_t> slots;
  for (std::int64_t slot = 0; slot < FinalSlot(source); ++slot) slots.push_back(slot);
  return slots;
}

std::int64_t FinalSlot(const ExportSource& source) { return static_cast<std::int64_t>(source.layers().size()) - 1; }

bool HasDefaultAuxLayers(const ExportSource& source) {
  const std::int32_t n = source.num_layers();
  return source.layers() == std::vector<std::int32_t>{2, n / 2, n - 3, n};
}

std::string AuxLayerList(const ExportSource& source, int shift) {
  std::string list = "[";
  for (const std::int64_t slot : AuxSlots(source)) {
    list += (slot == 0 ? "" : ", ") + std::to_string(source.layers()[static_cast<std::size_t>(slot)] + shift);
  }
  return list + "]";
}

Result<std::string> VocabMappingArchive(const VocabMap& vocab) {
  using torch_archive::Tensor;
  torch_archive::Dict dict;
  dict.Add("d2t", Tensor{safetensors::Dtype::kI64, {static_cast<std::int64_t>(vocab.d2t.size())}});
  dict.Add("t2d", Tensor{safetensors::Dtype::kBool, {static_cast<std::int64_t>(vocab.t2d.size())}});
  return torch_archive::BuildArchive(std::move(dict),
                                     {std::as_bytes(std::span(vocab.d2t)), std::as_bytes(std::span(vocab.t2d))});
}

}  // namespace draftmill

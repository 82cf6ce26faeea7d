#include "exports/export_format.h"

#include <array>
#include <utility>

namespace draftmill {
namespace {

using Maker = std::unique_ptr<ExportFormat> (*)(FormatContext);

constexpr std::array<std::pair<std::string_view, Maker>, 5> kFormats = {{
    {"jsonl", MakeJsonlFormat},
    {"modelopt", MakeModeloptFormat},
    {"specforge", MakeSpecforgeFormat},
    {"speculators", MakeSpeculatorsFormat},
    {"torchspec", MakeTorchspecFormat},
}};

}  // namespace

std::vector<std::string_view> ExportFormatNames() {
  std::vector<std::string_view> names;
  for (const auto& [name, maker] : kFormats) names.push_back(name);
  return names;
}

Result<std::unique_ptr<ExportFormat>> MakeExportFormat(const std::string& name, FormatContext context) {
  std::string known;
  for (const auto& [format, maker] : kFormats) {
    if (format == name) return maker(std::move(context));
    known += (known.empty() ? "" : ", ") + std::string(format);
  }
  return InvalidConfig("there is no export format `" + name + "`; there are " + known + ". Nothing was written");
}

}  // namespace draftmill

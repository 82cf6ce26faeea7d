#include "stages/extract/device/device_fault.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace draftmill {
namespace {

struct KindName {
  DeviceFaultKind kind;
  std::string_view name;
};
constexpr std::array kKinds = {KindName{DeviceFaultKind::kIllegalAccess, "illegal_access"},
                               KindName{DeviceFaultKind::kMemoryError, "memory_error"},
                               KindName{DeviceFaultKind::kLost, "lost"},
                               KindName{DeviceFaultKind::kOutOfMemory, "out_of_memory"}};

/// The text before the next colon, which is taken off.
std::string_view Take(std::string_view& text) {
  const std::size_t end = std::min(text.find(':'), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

template <typename Integer>
bool ToInteger(std::string_view text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

}  // namespace

Status DescribeDeviceFault(const std::string& gpu, const Status& status) {
  if (status.code() != StatusCode::kDevice) return status;
  return DeviceError(
      gpu + " failed: " + status.message() +
      ". The blocks that were under way on the GPUs are lost and are computed again; everything published is safe. Run "
      "again to continue with the GPUs that answer");
}

std::optional<PlannedDeviceFault> ParseDeviceFault(std::string_view text) {
  PlannedDeviceFault fault;
  const std::string_view name = Take(text);
  const auto* const kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& each) { return each.name == name; });
  if (kind == kKinds.end()) return std::nullopt;
  fault.kind = kind->kind;
  const std::string_view device = Take(text);
  if (!ToInteger(device, fault.device) || !ToInteger(text, fault.block) || fault.block < 1) return std::nullopt;
  return fault;
}

}  // namespace draftmill

#include "formats/records.h"

#include <bit>
#include <span>

namespace draftmill {

static_assert(std::endian::native == std::endian::little, "ids are hashed as they stand in memory, little-endian");

std::uint64_t TokenHash(const std::int32_t* input_ids, const std::uint8_t* loss_mask, std::int64_t tokens) {
  const auto count = static_cast<std::size_t>(tokens);
  StreamingHash hash;
  hash.Update(std::as_bytes(std::span(input_ids, count)));
  hash.Update(std::as_bytes(std::span(loss_mask, count)));
  return hash.Digest64();
}

}  // namespace draftmill

#include "stages/tokenize/tokenizer/unicode_properties.h"

#include <algorithm>
#include <iterator>

namespace draftmill {
namespace {

#include "stages/tokenize/tokenizer/unicode_tables.inc"

/// The classes of all code points of one category.
std::uint8_t ClassesOfCategory(GeneralCategory category) {
  using C = GeneralCategory;
  if (category == C::kLu || category == C::kLt) return kClassLetter | kClassUpper;
  if (category == C::kLl) return kClassLetter | kClassLower;
  if (category == C::kLm || category == C::kLo) return kClassLetter | kClassUpper | kClassLower;
  if (category <= C::kMe) return kClassMark | kClassUpper | kClassLower;
  if (category <= C::kNo) return kClassNumber;
  if (category <= C::kSo) return kClassPunctuation;
  if (category <= C::kZp) return kClassSpace;
  return 0;
}

}  // namespace

UnicodeProperties::UnicodeProperties() {
  const std::size_t runs = std::size(kCategoryRuns);
  for (std::size_t i = 0; i < runs; ++i) {
    const std::uint32_t first = kCategoryRuns[i] / 32;
    const std::uint32_t next = i + 1 < runs ? kCategoryRuns[i + 1] / 32 : kCodePointLimit;
    const auto number = static_cast<std::uint8_t>(kCategoryRuns[i] % 32);
    std::fill(properties_.begin() + first, properties_.begin() + next, number);
    std::fill(classes_.begin() + first, classes_.begin() + next,
              ClassesOfCategory(static_cast<GeneralCategory>(number)));
  }
  for (const auto& range : kHanRanges) {
    for (std::uint32_t c = range[0]; c <= range[1]; ++c) {
      properties_[c] |= kHanBit;
      classes_[c] |= kClassHan;
    }
  }
  for (const auto& range : kWordRanges) {
    for (std::uint32_t c = range[0]; c <= range[1]; ++c) properties_[c] |= kWordBit;
  }
  for (const auto& range : kRustWordRanges) {
    for (std::uint32_t c = range[0]; c <= range[1]; ++c) properties_[c] |= kRustWordBit;
  }
  for (const auto& range : kNormalizationActiveRanges) {
    for (std::uint32_t c = range[0]; c <= range[1]; ++c) normalization_active_.set(c);
  }
  for (std::uint32_t c = 0x09; c <= 0x0D; ++c) classes_[c] |= kClassSpace;
  classes_[0x85] |= kClassSpace;
  ascii_classes_.fill(0);
  std::copy_n(classes_.begin(), 128, ascii_classes_.begin());
}

const UnicodeProperties& UnicodeProperties::Get() {
  static const UnicodeProperties* const kTable = new UnicodeProperties();  // never destroyed: threads may outlive main
  return *kTable;
}

}  // namespace draftmill

// Where a piece of rendered text stems from. Every run of text inside the template engine carries one of these.
//
// A run is either *field* text, which came out of the row (a message's content, a tool call, the list of tools), or
// *literal* text, which the template or its configuration wrote. Literal text belongs to the message in whose loop
// iteration it was written, if there is one. Both kinds know whether they were written inside {% generation %}. Field text
// also knows whether it was written in the iteration of a later message than its own.
// Plain values; safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace draftmill::jinja {

/// What a field of a message is to the loss mask.
enum class FieldKind : std::uint8_t {
  kContent,    ///< what the message says
  kReasoning,  ///< reasoning_content, thinking, or what stands between <think> and </think> inside content
  kToolCall,   ///< one entry of tool_calls
  kRole,       ///< role and other keys that are no text of the message: a template may well leave them out
  kOther,      ///< any other member of a message
  kRow,        ///< text of the row outside messages: tools, documents
};

/// One source of field text. Slots are numbered in the order in which a conversation is converted.
struct FieldSlot {
  std::int32_t message = -1;  ///< index of the message; -1 for text outside messages
  FieldKind kind = FieldKind::kOther;
  std::string name;       ///< "content", "tool_calls[1]", "tools"
  bool has_text = false;  ///< whether any text stands in it that is not white space
};

/// A tag of four bytes: bit 31 generation block, bit 30 field, bit 29 field in a later message's iteration; the rest is the
/// slot, or the owner plus one.
class Provenance {
 public:
  static constexpr std::int32_t kNoMessage = -1;
  /// Larger numbers do not fit in a tag; conversations are refused long before.
  static constexpr std::uint32_t kMaximumIndex = (1U << 29) - 2;

  /// Literal text that belongs to no message yet.
  constexpr Provenance() = default;
  static constexpr Provenance Literal(std::int32_t owner) { return Provenance(static_cast<std::uint32_t>(owner + 1)); }
  static constexpr Provenance Field(std::uint32_t slot) { return Provenance(kFieldBit | slot); }

  constexpr bool is_field() const { return (bits_ & kFieldBit) != 0; }
  constexpr bool is_literal() const { return !is_field(); }
  constexpr bool in_generation() const { return (bits_ & kGenerationBit) != 0; }
  /// Index into the conversation's slots; only for field text.
  constexpr std::uint32_t slot() const { return bits_ & kIndexMask; }
  /// The message that literal text belongs to, or kNoMessage; only for literal text.
  constexpr std::int32_t owner() const { return static_cast<std::int32_t>(bits_ & kIndexMask) - 1; }

  /// Whether field text was written while the template iterated over a later message than the field's.
  constexpr bool in_later_message() const { return is_field() && (bits_ & kLaterBit) != 0; }

  constexpr Provenance WithGeneration() const { return Provenance(bits_ | kGenerationBit); }
  /// Only for field text.
  constexpr Provenance InLaterMessage() const { return Provenance(bits_ | kLaterBit); }
  /// Literal text without an owner gets this one; everything else stays.
  constexpr Provenance OwnedBy(std::int32_t message) const {
    if ((bits_ & ~kGenerationBit) != 0) return *this;
    return Provenance(bits_ | static_cast<std::uint32_t>(message + 1));
  }

  friend constexpr bool operator==(Provenance a, Provenance b) = default;

 private:
  static constexpr std::uint32_t kGenerationBit = 1U << 31;
  static constexpr std::uint32_t kFieldBit = 1U << 30;
  static constexpr std::uint32_t kLaterBit = 1U << 29;
  static constexpr std::uint32_t kIndexMask = kLaterBit - 1;

  explicit constexpr Provenance(std::uint32_t bits) : bits_(bits) {}

  std::uint32_t bits_ = 0;
};

}  // namespace draftmill::jinja

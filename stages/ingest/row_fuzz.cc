// Fuzzes the way of a source file's bytes: cut into rows, parsed, brought into canonical form. What comes out must be
// read back as itself, and must not change when it is ingested again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/utf8.h"
#include "stages/ingest/row_batch.h"
#include "stages/ingest/row_reader.h"

namespace draftmill {
namespace {

class FuzzStream : public ByteStream {
 public:
  FuzzStream(std::string_view text, std::size_t piece) : text_(text), piece_(piece) {}
  Result<std::size_t> Read(std::span<std::byte> buffer) override {
    const std::size_t bytes = std::min({buffer.size(), piece_, text_.size()});
    std::memcpy(buffer.data(), text_.data(), bytes);
    text_.remove_prefix(bytes);
    return bytes;
  }
  std::int64_t packed_bytes() const override { return 0; }
  Result<Hash128> HashWholeFile() override { return Hash128(); }

 private:
  std::string_view text_;
  std::size_t piece_;
};

void CheckRow(std::string_view text) {
  const Result<json::Value> row = json::Parse(text);
  if (!row.ok()) {
    if (!IsValidUtf8(row.status().message())) std::abort();
    return;
  }
  const std::string written = json::Write(*row);
  const Result<json::Value> again = json::Parse(written);
  if (!again.ok() || !(*again == *row) || json::Write(*again) != written) std::abort();
  for (const bool normalize : {false, true}) {
    RowRefusal refusal;
    const Result<json::Value> conversation = CanonicalConversation(*row, RowForm::kAuto, normalize, &refusal);
    if (conversation.ok() != refusal.reason.empty()) std::abort();
    if (!conversation.ok()) {
      if (!IsValidUtf8(conversation.status().message())) std::abort();
      continue;
    }
    const Result<json::Value> twice = CanonicalConversation(*conversation, RowForm::kAuto, normalize);
    if (!twice.ok() || !(*twice == *conversation)) std::abort();
  }
}

}  // namespace
}  // namespace draftmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using draftmill::FileLayout;
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const FileLayout layout = (data[0] & 1) != 0 ? FileLayout::kLines : FileLayout::kValues;
  draftmill::RowReader reader(std::make_unique<draftmill::FuzzStream>(text, std::size_t{1} << data[0] / 2U % 16U),
                              layout, 1 << 12);
  draftmill::RawRow row;
  while (true) {
    const draftmill::Result<bool> more = reader.Next(row);
    if (!more.ok() || !*more) break;
    draftmill::CheckRow(row.text);
  }
  return 0;
}

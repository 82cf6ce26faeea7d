// Encodes texts for the oracle tests: reads frames from standard input, writes frames to standard output.
//
//   encode_lines TOKENIZER_FILE_OR_FOLDER
//
// A request is the length of a text in bytes (u32, little-endian) and the text. The answer is the number of tokens
// (u32) and for each its id, begin and end (three i32), or 0xFFFFFFFF, the length of a message (u32) and the message. A
// request with bit 31 of its length set is followed by a u32 count and so many pairs of u32: the plain ranges.
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "stages/tokenize/tokenizer.h"

namespace {

using draftmill::ByteRange;
using draftmill::Encoding;
using draftmill::Result;
using draftmill::Status;
using draftmill::Tokenizer;

constexpr std::uint32_t kError = 0xFFFFFFFF;
constexpr std::uint32_t kPlainRangesFollow = 0x80000000;

bool ReadWord(std::uint32_t& word) { return std::fread(&word, sizeof(word), 1, stdin) == 1; }

void WriteWord(std::uint32_t word) { std::fwrite(&word, sizeof(word), 1, stdout); }

bool ReadRequest(std::string& text, std::vector<ByteRange>& plain_ranges) {
  std::uint32_t length = 0;
  if (!ReadWord(length)) return false;
  text.resize(length & ~kPlainRangesFollow);
  if (std::fread(text.data(), 1, text.size(), stdin) != text.size()) return false;
  plain_ranges.clear();
  std::uint32_t count = 0;
  if ((length & kPlainRangesFollow) != 0 && !ReadWord(count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    if (!ReadWord(begin) || !ReadWord(end)) return false;
    plain_ranges.push_back({begin, end});
  }
  return true;
}

void WriteAnswer(const Status& status, const Encoding& encoding) {
  if (!status.ok()) {
    WriteWord(kError);
    WriteWord(static_cast<std::uint32_t>(status.message().size()));
    std::fwrite(status.message().data(), 1, status.message().size(), stdout);
    return;
  }
  WriteWord(static_cast<std::uint32_t>(encoding.ids.size()));
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    WriteWord(static_cast<std::uint32_t>(encoding.ids[i]));
    WriteWord(static_cast<std::uint32_t>(encoding.begin[i]));
    WriteWord(static_cast<std::uint32_t>(encoding.end[i]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: encode_lines TOKENIZER_FILE_OR_FOLDER < frames > frames\n");
    return 2;
  }
  struct stat info {};
  const bool is_folder = stat(argv[1], &info) == 0 && S_ISDIR(info.st_mode);
  Result<std::unique_ptr<const Tokenizer>> tokenizer =
      is_folder ? Tokenizer::LoadFolder(argv[1]) : Tokenizer::LoadFile(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  const Tokenizer::Scratch scratch = (*tokenizer)->MakeScratch();
  std::string text;
  std::vector<ByteRange> plain_ranges;
  Encoding encoding;
  while (ReadRequest(text, plain_ranges)) {
    WriteAnswer((*tokenizer)->Encode(text, plain_ranges, *scratch, encoding), encoding);
  }
  return 0;
}

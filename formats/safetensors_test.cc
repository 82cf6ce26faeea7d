#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/test_data.h"
#include "formats/memory_file.h"

namespace draftmill::safetensors {
namespace {

std::string LittleEndian64(std::uint64_t number) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

std::string FileOf(const std::string& json, std::size_t data_bytes) {
  return LittleEndian64(json.size()) + json + std::string(data_bytes, '\1');
}

Result<Header> Read(const std::string& content) {
  MemoryFile file(content);
  return ReadHeader(file, "m.safetensors");
}

// The refusal of a file with this header and so many bytes of data.
std::string Refusal(const std::string& json, std::size_t data_bytes) {
  const Result<Header> header = Read(FileOf(json, data_bytes));
  EXPECT_FALSE(header.ok()) << json;
  EXPECT_EQ(header.status().code(), StatusCode::kInvalidInput);
  EXPECT_NE(header.status().message().find("m.safetensors"), std::string::npos);
  return header.status().message();
}

// Written by safetensors 0.8.0: save({"b": int32 [[1, 2, 3]], "a": float16 [4, 5]}, metadata={"k": "v"}).
TEST(Safetensors, ReadsWhatThePythonPackageWrote) {
  const std::string json = R"({"__metadata__":{"k":"v"},"b":{"dtype":"I32","shape":[1,3],"data_offsets":[0,12]},)"
                           R"("a":{"dtype":"F16","shape":[2],"data_offsets":[12,16]}}       )";
  const std::string content =
      LittleEndian64(json.size()) + json + std::string("\1\0\0\0\2\0\0\0\3\0\0\0\0\x44\0\x45", 16);
  const Result<Header> header = Read(content);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  ASSERT_EQ(header->tensors().size(), 2U);
  EXPECT_EQ(header->tensors()[0].name, "b");
  EXPECT_EQ(header->FindMetadata("k"), "v");
  EXPECT_EQ(header->FindMetadata("K"), std::nullopt);
  const TensorInfo* b = header->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(DescribeTensor(*b), "I32 [1, 3]");
  EXPECT_EQ(header->Find("c"), nullptr);
  MemoryFile file(content);
  const Result<std::vector<std::int32_t>> numbers = ReadTensor<std::int32_t>(file, "m", *b);
  ASSERT_TRUE(numbers.ok());
  EXPECT_EQ(*numbers, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(ReadTensor<std::int64_t>(file, "m", *b).status().code(), StatusCode::kInvalidInput);
}

TEST(Safetensors, AcceptsOddHeaderLengthsEmptyMetadataEmptyTensorsAndScalars) {
  const Result<Header> header = Read(FileOf(
      R"({"z":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[4,4]},"__metadata__":{},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"x":{"dtype":"F4","shape":[6],"data_offsets":[4,7]}})",
      7));
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->Find("s")->elements(), 1);
  EXPECT_EQ(header->Find("z")->elements(), 0);
  EXPECT_EQ(header->Find("x")->bytes, 3);
  EXPECT_TRUE(Read(FileOf("{}", 0)).ok());
}

TEST(Safetensors, AcceptsEveryDtypeOfTheFormatAndNoOther) {
  for (const char* name : {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
                           "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
                           "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
    const std::optional<Dtype> dtype = DtypeFromName(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(DtypeName(*dtype), name);
  }
  EXPECT_EQ(DtypeBits(Dtype::kBf16), 16);
  EXPECT_EQ(DtypeBits(Dtype::kF8E4M3), 8);
  EXPECT_NE(Refusal(R"({"w":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1).find("unknown dtype 'F7'"),
            std::string::npos);
}

TEST(Safetensors, RefusesWhatDoesNotTileTheFile) {
  EXPECT_NE(Refusal(R"({"lm_head.weight":{"dtype":"BF16","shape":[32,16],"data_offsets":[0,8]}})", 8)
                .find("'lm_head.weight' BF16 [32, 16] needs 1024 bytes, but its data_offsets [0, 8] cover 8"),
            std::string::npos);
  const std::string a = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  EXPECT_NE(Refusal(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9).find("'b' leaves a hole"),
            std::string::npos);
  EXPECT_NE(Refusal(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7).find("'b' overlaps"),
            std::string::npos);
  EXPECT_NE(Refusal(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 7).find("cut short"),
            std::string::npos);
  EXPECT_NE(Refusal(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 9).find("belong to no tensor"),
            std::string::npos);
  EXPECT_NE(Refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4).find("cover none"),
            std::string::npos);
}

TEST(Safetensors, RefusesNumbersThatOverflow) {
  for (const char* tensor :
       {R"({"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
        R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":[-1,0]})", R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":[0,1,2]})"}) {
    EXPECT_NE(Refusal("{\"w\":" + std::string(tensor) + "}", 1).find("'w'"), std::string::npos);
  }
  EXPECT_NE(Refusal(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}})", 1)
                .find("beyond any file"),
            std::string::npos);
}

TEST(Safetensors, RefusesNamesThatStandTwiceAndMissingMembers) {
  const std::string w = R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_NE(Refusal("{" + w + "," + w + "}", 0).find("'w' stands twice"), std::string::npos);
  EXPECT_NE(Refusal(R"({"__metadata__":{},"__metadata__":{}})", 0).find("stands twice"), std::string::npos);
  EXPECT_NE(Refusal(R"({"__metadata__":{"a":"1","a":"2"}})", 0).find("'__metadata__.a' stands twice"),
            std::string::npos);
  EXPECT_NE(Refusal(R"({"__metadata__":{"a":1}})", 0).find("'__metadata__.a' is no text"), std::string::npos);
  EXPECT_NE(Refusal(R"({"w":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})", 0).find("once each"),
            std::string::npos);
  EXPECT_NE(Refusal(R"({"w":{"dtype":"U8","shape":[0]}})", 0).find("once each"), std::string::npos);
  EXPECT_NE(Refusal(R"({"w":7})", 0).find("no object"), std::string::npos);
}

TEST(Safetensors, RefusesFilesThatAreNone) {
  EXPECT_NE(Read(std::string("abc")).status().message().find("no safetensors file"), std::string::npos);
  EXPECT_NE(Read(LittleEndian64(std::uint64_t{1} << 60) + "{}").status().message().find("1152921504606846976 bytes"),
            std::string::npos);
  EXPECT_NE(Read(LittleEndian64(50) + "{}").status().message().find("cut short"), std::string::npos);
  EXPECT_FALSE(Read(FileOf("", 0)).ok());
  EXPECT_FALSE(Read(FileOf(" {}", 0)).ok());
  EXPECT_FALSE(Read(FileOf("[]", 0)).ok());
  EXPECT_FALSE(Read(FileOf("{} x", 0)).ok());
  EXPECT_FALSE(Read(FileOf("{\"w\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0)).ok());
  EXPECT_FALSE(Read(FileOf("{\"\xff\":{}}", 0)).ok());
}

TEST(Safetensors, BuiltHeadersReadBackAlignedInTheGivenOrder) {
  const std::vector<TensorSpec> specs = {{"hidden_states", Dtype::kBf16, {3, 4, 8}},
                                         {"cu_seqlens", Dtype::kI64, {2}},
                                         {"a\"quoted\" \u00e9", Dtype::kU8, {5}},
                                         {"nothing", Dtype::kU8, {0, 3}}};
  const Metadata metadata = {{"format_version", "1"}, {"line", "a\nb"}};
  for (std::int64_t alignment : {8, 4096}) {
    const Result<BuiltHeader> built = BuildHeader(specs, metadata, alignment);
    ASSERT_TRUE(built.ok()) << built.status().ToString();
    EXPECT_EQ(static_cast<std::int64_t>(built->bytes.size()), built->header.data_start());
    EXPECT_EQ(built->header.data_start() % alignment, 0);
    const auto data_bytes = static_cast<std::size_t>(built->header.file_bytes() - built->header.data_start());
    EXPECT_EQ(data_bytes, 3U * 4 * 8 * 2 + 16 + 5);
    const Result<Header> read = Read(built->bytes + std::string(data_bytes, '\0'));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->metadata(), metadata);
    ASSERT_EQ(read->tensors().size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(read->tensors()[i].name, specs[i].name);
      EXPECT_EQ(read->tensors()[i].offset, built->header.tensors()[i].offset);
    }
  }
}

TEST(Safetensors, BuildHeaderRefusesWhatItCouldNotRead) {
  EXPECT_FALSE(BuildHeader({{"a", Dtype::kU8, {1}}, {"a", Dtype::kU8, {1}}}, {}).ok());
  EXPECT_FALSE(BuildHeader({{"a", Dtype::kU8, {-1}}}, {}).ok());
  EXPECT_FALSE(BuildHeader({{"__metadata__", Dtype::kU8, {1}}}, {}).ok());
  EXPECT_FALSE(BuildHeader({{"a", Dtype::kU64, {std::int64_t{1} << 61}}}, {}).ok());
}

// Files that went wrong for people elsewhere.
TEST(Safetensors, TheFieldsCasesAreReadOrRefusedAsTheyShouldBe) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model");
  const auto read = [&folder = folder](const std::string& name) {
    return ReadHeader(RealFileSystem(), folder + "/" + name + "/model.safetensors");
  };
  EXPECT_TRUE(read("header_not_aligned").ok()) << read("header_not_aligned").status().ToString();
  EXPECT_TRUE(read("metadata_empty").ok()) << read("metadata_empty").status().ToString();
  const Result<Header> empty = read("tensor_of_no_elements");
  ASSERT_TRUE(empty.ok()) << empty.status().ToString();
  ASSERT_NE(empty->Find("scaled_fp8"), nullptr);
  EXPECT_EQ(empty->Find("scaled_fp8")->elements(), 0);
  const std::string cut = read("file_cut_short").status().message();
  EXPECT_NE(cut.find("model.safetensors: the file is cut short"), std::string::npos) << cut;
  const std::string span = read("span_shorter_than_shape").status().message();
  EXPECT_NE(span.find("'lm_head.weight'"), std::string::npos) << span;
  EXPECT_NE(span.find("needs 1024 bytes"), std::string::npos) << span;
  EXPECT_NE(span.find("cover 8"), std::string::npos) << span;
}

// The largest models have about 200,000 tensors; their headers are read before anything else happens.
TEST(Safetensors, ReadsTheHeaderOfManyTensorsQuickly) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 200'000; ++i) {
    specs.push_back(
        {"model.layers." + std::to_string(i / 3000) + ".mlp.experts." + std::to_string(i) + ".weight_packed",
         Dtype::kI32,
         {2048, 896}});
  }
  const Result<BuiltHeader> built = BuildHeader(specs, {});
  ASSERT_TRUE(built.ok());
  const auto start = std::chrono::steady_clock::now();
  const Result<Header> header =
      ParseHeader(std::string_view(built->bytes).substr(8), built->header.file_bytes(), "large.safetensors");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->tensors().size(), specs.size());
  EXPECT_LT(seconds.count(), 5.0);  // 0.2 s on one quiet core; the bound leaves room for sanitizers
  RecordProperty("milliseconds", static_cast<int>(seconds.count() * 1000));
}

}  // namespace
}  // namespace draftmill::safetensors

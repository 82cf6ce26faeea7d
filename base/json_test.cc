#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/test_data.h"
#include "base/utf8.h"

namespace draftmill::json {
namespace {

std::string Reprinted(std::string_view text, Style style = Style::kCompact) {
  const Result<Value> value = Parse(text);
  return value.ok() ? Write(*value, style) : value.status().ToString();
}

struct Refusal {
  std::string text;
  ParseFault fault;
  std::size_t byte;
};

void ExpectRefusal(const Refusal& refusal, const ParseLimits& limits = {}) {
  ParseFailure failure;
  const Result<Value> value = Parse(refusal.text, limits, &failure);
  ASSERT_FALSE(value.ok()) << refusal.text;
  EXPECT_EQ(value.status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(failure.fault, refusal.fault) << refusal.text << ": " << value.status().message();
  EXPECT_EQ(failure.byte, refusal.byte) << refusal.text << ": " << value.status().message();
  EXPECT_TRUE(value.status().message().ends_with(", at byte " + std::to_string(refusal.byte)))
      << value.status().message();
}

TEST(JsonParseTest, KeepsTheOrderOfKeysAndTheKindsOfNumbers) {
  const Result<Value> value = Parse(R"( {"b": [1, -2.50, 1E3, null], "a": {"": true}} )");
  ASSERT_TRUE(value.ok()) << value.status().message();
  const Array& list = value->Find("b")->as_array();
  EXPECT_EQ(list[0], Value(1));
  EXPECT_EQ(list[1], Value(-2.5));
  EXPECT_EQ(list[2], Value(1000.0));
  EXPECT_TRUE(list[3].is_null());
  EXPECT_TRUE(value->Find("a")->Find("")->as_bool());
  EXPECT_EQ(value->Find("c"), nullptr);
  EXPECT_EQ(Write(*value), R"({"b":[1,-2.5,1000.0,null],"a":{"":true}})");
}

TEST(JsonParseTest, KeepsIntegersOfAnySize) {
  EXPECT_EQ(Reprinted("[9223372036854775807,-9223372036854775808,9223372036854775808,-123456789012345678901234567890]"),
            "[9223372036854775807,-9223372036854775808,9223372036854775808,-123456789012345678901234567890]");
  EXPECT_TRUE(Parse("9223372036854775808")->is_big_integer());
  EXPECT_EQ(Parse("18446744073709551616")->as_double(), 18446744073709551616.0);
  EXPECT_EQ(Write(Value(std::numeric_limits<std::uint64_t>::max())), "18446744073709551615");
  EXPECT_EQ(Reprinted("-0"), "0");
  EXPECT_EQ(Reprinted("-0.0"), "-0.0");
}

TEST(JsonParseTest, TakesTinyNumbersAsZeroAndRefusesHugeOnes) {
  EXPECT_EQ(Reprinted("[1e-400,-1e-99999999999999999999,0e99999999999999999999,0.0e400]"), "[0.0,-0.0,0.0,0.0]");
  EXPECT_EQ(Reprinted("[5e-324,1.7976931348623157e308]"), "[5e-324,1.7976931348623157e+308]");
  EXPECT_EQ(Reprinted("0." + std::string(400, '0') + "1e402"), "10.0");
  ExpectRefusal({"[1e400]", ParseFault::kSyntax, 1});
  ExpectRefusal({"[-1e99999999999999999999]", ParseFault::kSyntax, 1});
}

TEST(JsonParseTest, DecodesEscapes) {
  const Result<Value> value = Parse(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\uD834\udd1e\u0000")");
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(value->as_string(), std::string("\"\\/\b\f\n\r\tA\u00e9\u20ac\U0001D11E") + '\0');
}

TEST(JsonParseTest, SaysWhyAndWhere) {
  for (const Refusal& refusal : std::vector<Refusal>{{"", ParseFault::kSyntax, 0},
                                                     {"  ", ParseFault::kSyntax, 2},
                                                     {"[1,]", ParseFault::kSyntax, 3},
                                                     {"{\"a\" 1}", ParseFault::kSyntax, 5},
                                                     {"{\"a\":1,}", ParseFault::kSyntax, 7},
                                                     {"[01]", ParseFault::kSyntax, 2},
                                                     {"nul", ParseFault::kSyntax, 0},
                                                     {"{} {}", ParseFault::kSyntax, 3},
                                                     {"\xEF\xBB\xBF{}", ParseFault::kSyntax, 0},
                                                     {"\"a\nb\"", ParseFault::kSyntax, 2},
                                                     {"\"\\x\"", ParseFault::kSyntax, 2},
                                                     {"\"\\u12g4\"", ParseFault::kSyntax, 5},
                                                     {"\"abc", ParseFault::kSyntax, 4},
                                                     {"\"a\xFF\"", ParseFault::kUtf8, 2},
                                                     {"\"\xC0\xAF\"", ParseFault::kUtf8, 1},
                                                     {"\"\xED\xA0\x80\"", ParseFault::kUtf8, 1},
                                                     {"\"x\xE2\x82", ParseFault::kUtf8, 2},
                                                     {R"(["\ud83d"])", ParseFault::kLoneSurrogate, 2},
                                                     {R"(["\ud83d\u0041"])", ParseFault::kLoneSurrogate, 2},
                                                     {R"(["a\ude00"])", ParseFault::kLoneSurrogate, 3},
                                                     {R"({"a": 1, "b": 2, "a": 3})", ParseFault::kDuplicateKey, 17},
                                                     {R"({"a": 1, "\u0061": 3})", ParseFault::kDuplicateKey, 9}}) {
    ExpectRefusal(refusal);
  }
}

TEST(JsonParseTest, FindsDuplicatesAmongManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 3000; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_TRUE(Parse(text + "\"last\":0}").ok());
  for (const char* key : {"k0", "k15", "k16", "k17", "k2999"}) {
    ExpectRefusal({text + "\"" + key + "\":0}", ParseFault::kDuplicateKey, text.size()});
  }
}

TEST(JsonParseTest, IsBoundedInDepthAndSize) {
  const std::string deep = std::string(256, '[') + std::string(256, ']');
  EXPECT_TRUE(Parse(deep).ok());
  ExpectRefusal({"[" + deep + "]", ParseFault::kTooDeep, 256});
  ExpectRefusal({std::string(1 << 20, '['), ParseFault::kTooDeep, 256});
  ExpectRefusal({"[[[1]]]", ParseFault::kTooDeep, 2}, {.max_depth = 2});
  ExpectRefusal({"[1,2,3]", ParseFault::kTooLong, 6}, {.max_bytes = 6});
}

TEST(JsonParseTest, EndsAsTheMalformedCollectionSays) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "malformed/json");
  int seen = 0;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    ParseFailure failure;
    const Result<Value> value = Parse(text.str(), {}, &failure);
    ++seen;
    if (!value.ok()) {
      EXPECT_LE(failure.byte, text.str().size()) << name;
      EXPECT_NE(value.status().message().find(", at byte "), std::string::npos) << name;
    }
    if (name.starts_with("n_")) {
      EXPECT_FALSE(value.ok()) << name;
    } else if (name.starts_with("y_object_duplicated")) {
      EXPECT_EQ(failure.fault, ParseFault::kDuplicateKey) << name;  // legal JSON, refused by design
    } else if (name.starts_with("y_")) {
      EXPECT_TRUE(value.ok()) << name << ": " << value.status().message();
    } else if (name.find("surrogate") != std::string::npos) {
      EXPECT_EQ(failure.fault, ParseFault::kLoneSurrogate) << name;
    }
    if (!value.ok()) continue;
    const Result<Value> again = Parse(Write(*value));
    ASSERT_TRUE(again.ok()) << name << ": " << again.status().message();
    EXPECT_EQ(*again, *value) << name;
  }
  EXPECT_GT(seen, 100);
}

TEST(JsonWriteTest, SortsKeysInCanonicalStyleAndIndentsInPrettyStyle) {
  const std::string text = R"({"b":[1,{"z":2,"y":[]}],"a":"x","é":{}})";
  EXPECT_EQ(Reprinted(text), text);
  EXPECT_EQ(Reprinted(text, Style::kCanonical), R"({"a":"x","b":[1,{"y":[],"z":2}],"é":{}})");
  EXPECT_EQ(
      Reprinted(text, Style::kPretty),
      "{\n  \"b\": [\n    1,\n    {\n      \"z\": 2,\n      \"y\": []\n    }\n  ],\n  \"a\": \"x\",\n  \"é\": {}\n}");
}

TEST(JsonWriteTest, EscapesWhatPythonEscapes) {
  // json.dumps("\x00\x1f\"\\/\b\f\n\r\t\x7f\u2028😀", ensure_ascii=False)
  std::string out;
  AppendQuoted(std::string_view("\0\x1F\"\\/\b\f\n\r\t\x7F\u2028\U0001F600", 18), out);
  EXPECT_EQ(out, "\"\\u0000\\u001f\\\"\\\\/\\b\\f\\n\\r\\t\x7F\u2028\U0001F600\"");
}

TEST(JsonWriteTest, WritesDoublesAsPythonDoes) {
  // [repr(x) for x in ...], Python 3.11
  const std::vector<std::pair<double, std::string>> cases = {{0.0, "0.0"},
                                                             {-0.0, "-0.0"},
                                                             {1.0, "1.0"},
                                                             {0.1, "0.1"},
                                                             {1.0 / 3, "0.3333333333333333"},
                                                             {100.0, "100.0"},
                                                             {123456.789, "123456.789"},
                                                             {0.0001, "0.0001"},
                                                             {0.00001, "1e-05"},
                                                             {1.5e-7, "1.5e-07"},
                                                             {1e15, "1000000000000000.0"},
                                                             {9999999999999998.0, "9999999999999998.0"},
                                                             {1e16, "1e+16"},
                                                             {1.2345e16, "1.2345e+16"},
                                                             {1e22, "1e+22"},
                                                             {1e100, "1e+100"},
                                                             {-2.5e-300, "-2.5e-300"},
                                                             {5e-324, "5e-324"},
                                                             {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                             {3.141592653589793, "3.141592653589793"},
                                                             {1234567890123456.0, "1234567890123456.0"},
                                                             {std::numeric_limits<double>::infinity(), "inf"},
                                                             {-std::numeric_limits<double>::infinity(), "-inf"},
                                                             {std::nan(""), "nan"}};
  for (const auto& [number, text] : cases) EXPECT_EQ(PythonRepr(number), text);
}

TEST(JsonValueTest, ComparesAndChanges) {
  Value object{Object{}};
  object.Set("a", 1);
  object.Set("b", "x");
  object.Set("a", 2);
  EXPECT_EQ(Write(object), R"({"a":2,"b":"x"})");
  EXPECT_EQ(object, *Parse(R"({"a":2,"b":"x"})"));
  EXPECT_FALSE(object == *Parse(R"({"b":"x","a":2})"));
  EXPECT_FALSE(Value(1) == Value(1.0));
  EXPECT_EQ(object.KindName(), "an object");
}

TEST(Utf8Test, AgreesWithTheTableOfWellFormedSequences) {
  // Every pair and the corners of longer sequences, against a decoder that goes by code points.
  const auto encodes = [](std::string_view bytes) {
    for (std::uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
      if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
      std::string encoded;
      AppendUtf8(code_point, encoded);
      if (encoded.size() > bytes.size()) return false;
      if (encoded == bytes) return true;
    }
    return false;
  };
  for (int first = 0xC0; first <= 0xDF; ++first) {
    for (int second = 0x7F; second <= 0xC0; second += 0x41) {
      const std::string bytes = {static_cast<char>(first), static_cast<char>(second)};
      EXPECT_EQ(IsValidUtf8(bytes), encodes(bytes)) << first << " " << second;
    }
  }
  std::string all;
  for (std::uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    AppendUtf8(code_point, all);
  }
  EXPECT_TRUE(IsValidUtf8(all));
  for (const char* bad : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xFE", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_EQ(ValidUtf8Length(std::string("twelve bytes") + bad + "z"), 12U);
  }
}

}  // namespace
}  // namespace draftmill::json

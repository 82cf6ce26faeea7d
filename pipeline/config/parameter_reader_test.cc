#include "pipeline/config/parameter_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

using ::testing::HasSubstr;

/// The value as JSON, or the refusal's message.
std::string Read(const ParameterSpec& spec, std::string_view text) {
  auto value = ReadParameterText(spec, spec.name, text, "base");
  return value.ok() ? json::Write(*value) : value.status().message();
}

TEST(ParameterReaderTest, Integers) {
  const ParameterSpec spec{.name = "rows",
                           .type = ParameterType::kInteger,
                           .words = {"auto"},

                           .minimum = 1,
                           .maximum = 4096};
  EXPECT_EQ(Read(spec, "17"), "17");
  EXPECT_EQ(Read(spec, "auto"), "\"auto\"");
  EXPECT_EQ(Read(spec, "0"), "`rows` must be an integer from 1 to 4096, or `auto`, not `0`");
  EXPECT_THAT(Read(spec, "'17'"), HasSubstr("write it without quotes"));
  for (const char* text : {"4097", "1.0", "1e3", "x", "~", "[1]", "{a: 1}", "99999999999999999999", "0x10", "true"}) {
    EXPECT_THAT(Read(spec, text), HasSubstr("must be an integer")) << text;
  }
}

TEST(ParameterReaderTest, NumbersAndBooleans) {
  const ParameterSpec number{.name = "share", .type = ParameterType::kNumber, .minimum = 0, .maximum = 1};
  EXPECT_EQ(Read(number, "0.05"), "0.05");
  EXPECT_EQ(Read(number, "1"), "1.0");
  for (const char* text : {"1.1", "-0.1", ".nan", ".inf", "1e999", "5%"}) {
    EXPECT_THAT(Read(number, text), HasSubstr("must be a number from 0 to 1")) << text;
  }
  const ParameterSpec boolean{.name = "on", .type = ParameterType::kBool};
  EXPECT_EQ(Read(boolean, "true"), "true");
  EXPECT_EQ(Read(boolean, "FALSE"), "false");
  EXPECT_THAT(Read(boolean, "yes"), HasSubstr("did you mean `true`?"));
  EXPECT_THAT(Read(boolean, "'true'"), HasSubstr("must be `true` or `false`"));
}

TEST(ParameterReaderTest, TextAndPaths) {
  const ParameterSpec text{.name = "name", .type = ParameterType::kText};
  EXPECT_EQ(Read(text, "hello"), "\"hello\"");
  EXPECT_EQ(Read(text, "'7'"), "\"7\"");
  EXPECT_THAT(Read(text, "7"), HasSubstr("write it in quotes"));
  const ParameterSpec path{.name = "path", .type = ParameterType::kPath};
  EXPECT_EQ(Read(path, "a/../b"), "\"base/b\"");
  EXPECT_EQ(Read(path, "/x/y"), "\"/x/y\"");
  EXPECT_EQ(Read(path, "../c"), "\"c\"");
  EXPECT_EQ(Read(path, "2024"), "\"base/2024\"");
  EXPECT_THAT(Read(path, "''"), HasSubstr("must be a path"));
  for (const char* unexpanded : {"'~'", "~/data", "'${HOME}/data'", "'/data/${USER}'"}) {
    EXPECT_THAT(Read(path, unexpanded), HasSubstr("are not expanded")) << unexpanded;
  }
  EXPECT_EQ(Read(path, "./~/$x"), "\"base/~/$x\"");
}

TEST(ParameterReaderTest, SizesAndDurations) {
  const ParameterSpec size{.name = "bytes", .type = ParameterType::kBytes, .minimum = 1 << 20, .maximum = {}};
  EXPECT_EQ(Read(size, "256MiB"), "268435456");
  EXPECT_EQ(Read(size, "1kB"), "`bytes` must be a size such as `256MiB` of at least 1MiB, not `1kB`");
  EXPECT_THAT(Read(size, "1 lightyear"), HasSubstr("units of size are"));
  const ParameterSpec wait{.name = "wait", .type = ParameterType::kDuration};
  EXPECT_EQ(Read(wait, "15m"), "900000");
  EXPECT_THAT(Read(wait, "15"), HasSubstr("has no unit"));
}

TEST(ParameterReaderTest, ChoicesNameTheNearest) {
  const ParameterSpec spec{
      .name = "train_on", .type = ParameterType::kChoice, .choices = {"all_assistant_turns", "last_turn"}};
  EXPECT_EQ(Read(spec, "last_turn"), "\"last_turn\"");
  EXPECT_THAT(Read(spec, "lastturn"), HasSubstr("did you mean `last_turn`?"));
  EXPECT_THAT(Read(spec, "Last-Turn"), HasSubstr("did you mean `last_turn`?"));
}

TEST(ParameterReaderTest, Lists) {
  const ParameterSpec layers{.name = "layers", .type = ParameterType::kIntegerList, .words = {"eagle3"}};
  EXPECT_EQ(Read(layers, "[2, 15, 27]"), "[2,15,27]");
  EXPECT_EQ(Read(layers, "eagle3"), "\"eagle3\"");
  EXPECT_THAT(Read(layers, "[2, x]"), HasSubstr("`layers[1]` must be an integer"));
  EXPECT_THAT(Read(layers, "2"), HasSubstr("must be a list of integers, or `eagle3`"));
  const ParameterSpec stops{.name = "stop", .type = ParameterType::kTextList};
  EXPECT_EQ(Read(stops, "['<|im_end|>', x]"), R"(["<|im_end|>","x"])");
}

TEST(ParameterReaderTest, FreeMappingsKeepTheirTypes) {
  const ParameterSpec spec{.name = "variables", .type = ParameterType::kMapping};
  EXPECT_EQ(Read(spec, "{a: 1, b: '1', c: [true, ~, 0.5], d: {e: text}}"),
            R"({"a":1,"b":"1","c":[true,null,0.5],"d":{"e":"text"}})");
  EXPECT_THAT(Read(spec, "{a: 99999999999999999999}"), HasSubstr("out of range"));
}

TEST(ParameterReaderTest, MappingsOfDeclaredFields) {
  const ParameterSpec spec{.name = "shuffle",
                           .type = ParameterType::kMapping,
                           .words = {"false"},
                           .fields = {{.name = "seed", .type = ParameterType::kInteger, .minimum = 0},
                                      {.name = "rounds", .type = ParameterType::kInteger, .default_yaml = "1"}}};
  EXPECT_EQ(Read(spec, "{seed: 7}"), R"({"seed":7,"rounds":1})");
  EXPECT_EQ(Read(spec, "false"), R"("false")");
  EXPECT_THAT(Read(spec, "{sed: 7}"), HasSubstr("unknown key `sed` in `shuffle`; did you mean `seed`?"));
  EXPECT_THAT(Read(spec, "{}"), HasSubstr("`shuffle.seed` is missing"));
  EXPECT_THAT(Read(spec, "{seed: -1}"), HasSubstr("`shuffle.seed` must be an integer of at least 0, not `-1`"));
  EXPECT_THAT(Read(spec, "7"), HasSubstr("`shuffle` must be a mapping `{seed: ..., rounds: 1}`, or `false`, not `7`"));
}

TEST(ParameterReaderTest, Sources) {
  const ParameterSpec spec{.name = "sources", .type = ParameterType::kSources, .choices = {"messages", "sharegpt"}};
  EXPECT_EQ(Read(spec, "[{path: a.jsonl, take: 10}, {path: /b, format: sharegpt, take: 0.5}]"),
            R"([{"path":"base/a.jsonl","take":10},{"path":"/b","format":"sharegpt","take":0.5}])");
  EXPECT_THAT(Read(spec, "[]"), HasSubstr("nothing to ingest"));
  EXPECT_THAT(Read(spec, "[a.jsonl]"), HasSubstr("must be a mapping such as"));
  EXPECT_THAT(Read(spec, "[{format: messages}]"), HasSubstr("has no `path`"));
  EXPECT_THAT(Read(spec, "[{pth: a}]"), HasSubstr("did you mean `path`?"));
  EXPECT_THAT(Read(spec, "[{path: a, format: sharegtp}]"), HasSubstr("did you mean `sharegpt`?"));
  for (const char* take : {"0", "-1", "1.5", "'3'", "all"}) {
    EXPECT_THAT(Read(spec, std::string("[{path: a, take: ") + take + "}]"), HasSubstr("fraction")) << take;
  }
}

TEST(ParameterReaderTest, WritesValuesAsTheyWouldBeWritten) {
  EXPECT_EQ(ValueAsYaml({.name = "", .type = ParameterType::kBytes}, std::int64_t{1} << 30), "1GiB");
  EXPECT_EQ(ValueAsYaml({.name = "", .type = ParameterType::kDuration}, 90'000), "90s");
  EXPECT_EQ(ValueAsYaml({.name = "", .type = ParameterType::kText}, "true"), "\"true\"");
  EXPECT_EQ(ValueAsYaml({.name = "", .type = ParameterType::kPath}, "data/x.jsonl"), "data/x.jsonl");
  EXPECT_EQ(ValueAsYaml({.name = "", .type = ParameterType::kMapping}, json::Object{{"a b", json::Array{1, "<|x|>"}}}),
            R"({"a b": [1, "<|x|>"]})");
  // Words are no text: they stand as the page of parameters writes them.
  EXPECT_EQ(ValueAsYaml({.name = "", .type = ParameterType::kMapping, .words = {"false"}}, "false"), "false");
  EXPECT_EQ(ValueAsJson({.name = "", .type = ParameterType::kMapping, .words = {"false"}}, "false"),
            json::Value(false));
  EXPECT_EQ(ValueAsJson({.name = "", .type = ParameterType::kText, .words = {"auto"}}, "false"), json::Value("false"));
  EXPECT_EQ(ValueAsJson({.name = "", .type = ParameterType::kInteger, .words = {"auto"}}, "auto"), json::Value("auto"));
}

}  // namespace
}  // namespace draftmill

#include <gtest/gtest.h>

#include "stages/ingest/ingest.h"
#include "stages/stage_spec.h"

namespace draftmill {
namespace {

ParameterValues Values(std::string_view sources, std::string_view shuffle) {
  ParameterValues values;
  values.Set("sources", {*json::Parse(sources)});
  values.Set("deduplicate", {json::Value(false)});
  values.Set("shuffle", {*json::Parse(shuffle)});
  values.Set("normalize", {json::Value(false)});
  values.Set("chunk_rows", {json::Value(100)});
  values.Set("chunk_bytes", {json::Value(2000)});
  values.Set("max_row_bytes", {json::Value(3000)});
  return values;
}

TEST(IngestSpecTest, BecomesOptions) {
  const Result<IngestOptions> options = IngestOptionsFrom(
      Values(R"([{"path":"a"},{"path":"b","format":"alpaca","take":5},{"path":"c","take":0.5}])", R"({"seed":7})"));
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  ASSERT_EQ(options->sources.size(), 3U);
  EXPECT_EQ(options->sources[0].path, "a");
  EXPECT_EQ(options->sources[0].form, RowForm::kAuto);
  EXPECT_FALSE(options->sources[0].take_rows || options->sources[0].take_fraction);
  EXPECT_EQ(options->sources[1].form, RowForm::kAlpaca);
  EXPECT_EQ(options->sources[1].take_rows, 5);
  EXPECT_EQ(options->sources[2].take_fraction, 0.5);
  EXPECT_EQ(options->shuffle_seed, 7U);
  EXPECT_FALSE(options->deduplicate || options->normalize);
  EXPECT_EQ(options->chunk_rows, 100);
  EXPECT_EQ(options->chunk_bytes, 2000);
  EXPECT_EQ(options->max_row_bytes, 3000);
  EXPECT_EQ(IngestOptionsFrom(Values(R"([{"path":"a"}])", R"("false")"))->shuffle_seed, std::nullopt);
}

TEST(IngestSpecTest, RefusesWhatDeclarationsCannotExpress) {
  for (const char* shuffle : {"{}", R"({"seed":-1})", R"({"seed":"7"})", R"({"seed":1,"sed":2})", R"({"sed":2})"}) {
    const Result<IngestOptions> options = IngestOptionsFrom(Values(R"([{"path":"a"}])", shuffle));
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidConfig) << shuffle;
    EXPECT_NE(options.status().message().find("ingest.shuffle"), std::string::npos);
  }
  for (const char* source :
       {R"({"path":"a","take":0})", R"({"path":"a","take":1.5})", R"({"path":"a","format":"x"})"}) {
    const Result<IngestOptions> options = IngestOptionsFrom(Values("[" + std::string(source) + "]", R"("false")"));
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidConfig) << source;
  }
}

TEST(IngestSpecTest, NamesEveryFormThatThereIs) {
  for (const ParameterSpec& parameter : IngestSpec().parameters) {
    EXPECT_FALSE(parameter.doc.empty()) << parameter.name;
    for (const std::string& name : parameter.choices) EXPECT_TRUE(RowFormFromName(name).ok()) << name;
  }
}

}  // namespace
}  // namespace draftmill

// What an export believes of a work folder that came from elsewhere.
#include "exports/export_source.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/json.h"
#include "pipeline/testing/example_run.h"

namespace draftmill {
namespace {

class ExportSourceTest : public testing::Test {
 protected:
  ExportSourceTest() {
    const RunReport report = example_.Run({}, {.make_extractor = &MakeExampleExtractor});
    EXPECT_EQ(report.exit_status, 3) << report.summary;
  }

  /// Opens the folder with another value of a fact of the model.
  Status OpenWith(const std::string& name, json::Value value) const {
    const std::string path = ManifestPath(example_.work().string());
    const std::string good = ExampleRun::Read(path);
    json::Value manifest = json::Parse(good).value();
    manifest.Find("facts")->Find("model")->Set(name, std::move(value));
    ExampleRun::Write(path, json::Write(manifest));
    const Status opened = ExportSource::Open(RealFileSystem(), example_.work().string()).status();
    ExampleRun::Write(path, good);
    return opened;
  }

  const ExampleRun example_;
};

TEST_F(ExportSourceTest, RefusesNumbersThatNoModelHas) {
  EXPECT_TRUE(OpenWith("num_layers", std::int64_t{7}).ok());
  for (const char* name : {"num_layers", "hidden_size", "vocab_rows"}) {
    for (const json::Value& value :
         {json::Value(std::int64_t{1} << 62), json::Value(-1), json::Value(0), json::Value("7")}) {
      const Status opened = OpenWith(name, value);
      EXPECT_EQ(opened.code(), StatusCode::kCorrupt) << name << " " << json::Write(value);
      EXPECT_NE(opened.message().find(name), std::string::npos) << opened.message();
    }
  }
}

TEST_F(ExportSourceTest, KnowsTheSourceOfEverySample) {
  const Result<ExportSource> source = ExportSource::Open(RealFileSystem(), example_.work().string());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const Result<std::vector<ExportRow>> rows = source->RowsOf(0, {});
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  ASSERT_FALSE(rows->empty());
  for (const ExportRow& row : *rows) EXPECT_EQ(source->SourceName(row.source), "rows.jsonl");
  EXPECT_EQ(source->SourceName(-1), "");
}

}  // namespace
}  // namespace draftmill

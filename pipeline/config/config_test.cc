#include "pipeline/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "pipeline/config/parameter_reader.h"
#include "pipeline/config/run_spec.h"

namespace draftmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The sections that a pipeline must have.
std::string Smallest(const std::string& work = "w", const std::string& model = "m") {
  std::string text = "work: " + work + "\nmodel: {path: " + model + "}\n";
  for (const SectionSpec& section : AllSections()) {
    if (section.name == "ingest") text += "ingest: {sources: [{path: d.jsonl}]}\n";
  }
  return text;
}

Result<Config> Parse(const std::string& text) {
  return Config::Parse(text, {.path = "conf/p.yaml", .base_folder = "conf"}, {});
}

std::string Refusal(const std::string& text) { return Parse(text).status().message(); }

TEST(ConfigTest, EveryDeclaredDefaultIsAcceptedByItsDeclaration) {
  for (const SectionSpec& section : AllSections()) {
    for (const ParameterSpec& parameter : section.parameters) {
      const std::string name = section.name + "." + parameter.name;
      EXPECT_FALSE(parameter.doc.empty()) << name;
      if (parameter.default_yaml.empty()) continue;
      auto value = ReadParameterText(parameter, parameter.name, parameter.default_yaml, "");
      EXPECT_TRUE(value.ok()) << name << ": " << value.status().message();
    }
  }
}

TEST(ConfigTest, TheSmallestFileHasAValueForEveryParameter) {
  auto config = Parse(Smallest());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->work_folder(), "conf/w");
  EXPECT_EQ(config->section("model").Text("path"), "conf/m");
  EXPECT_EQ(config->section("limits").Integer("memory"), std::int64_t{8} << 30);
  EXPECT_TRUE(config->section("limits").IsWord("threads", "auto"));
  for (const SectionSpec& section : AllSections()) {
    for (const ParameterSpec& parameter : section.parameters) {
      EXPECT_EQ(config->section(section.name).entries().count(parameter.name), 1U)
          << section.name << "." << parameter.name;
    }
  }
}

TEST(ConfigTest, KnowsWhereEachValueCameFrom) {
  auto config = Config::Parse("limits: {threads: 3}\n" + Smallest(), {.path = "p.yaml", .base_folder = "."},
                              {.work_folder = "elsewhere"});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->work_folder(), "elsewhere");
  const json::Value shown = config->EffectiveValuesWithOrigins();
  EXPECT_EQ(json::Write(*shown.Find("work")), R"({"value":"elsewhere","origin":"command line"})");
  EXPECT_EQ(json::Write(*shown.Find("limits")->Find("threads")), R"({"value":3,"origin":"file","line":1})");
  EXPECT_EQ(json::Write(*shown.Find("limits")->Find("disk_wait")), R"({"value":0,"origin":"default"})");
}

TEST(ConfigTest, WhatConfigShowPrintsIsAConfigurationWithTheSameValues) {
  auto config = Parse(Smallest());
  ASSERT_TRUE(config.ok());
  auto again = Config::Parse(config->EffectiveYaml(), {.path = "p.yaml", .base_folder = ""}, {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->CanonicalJson(), config->CanonicalJson());
}

TEST(ConfigTest, ReportsEverythingWrongAtOnceInTheOrderOfTheFile) {
  const std::string message =
      Refusal("work: w\nmodel:\n  pth: m\nlimits:\n  threads: many\n  memmory: 1GiB\nlimit: 3\n");
  EXPECT_THAT(message, HasSubstr("conf/p.yaml:3:3: unknown key `pth` in section `model`; did you mean `path`?"));
  EXPECT_THAT(message, HasSubstr("`model.path` is missing"));
  EXPECT_THAT(message,
              HasSubstr("conf/p.yaml:5:12: `limits.threads` must be an integer from 1 to 4096, or `auto`, not `many`"));
  EXPECT_THAT(message, HasSubstr("conf/p.yaml:6:3: unknown key `memmory` in section `limits`; did you mean `memory`?"));
  EXPECT_THAT(message, HasSubstr("conf/p.yaml:7:1: unknown key `limit`; did you mean `limits`?"));
  EXPECT_THAT(message,
              HasSubstr("Nothing was started or changed. Correct it, then: draftmill config check conf/p.yaml"));
  EXPECT_LT(message.find(":3:3:"), message.find(":5:12:"));
  EXPECT_LT(message.find(":6:3:"), message.find(":7:1:"));
}

TEST(ConfigTest, BoundsTheReport) {
  std::string text = Smallest();
  for (int i = 0; i < 500; ++i) text += "key" + std::to_string(i) + ": 1\n";
  const std::string message = Refusal(text);
  EXPECT_THAT(message, HasSubstr("... and 480 more"));
  EXPECT_LT(message.size(), 5'000U);
}

TEST(ConfigTest, SaysInWhichSectionAKeyBelongs) {
  EXPECT_THAT(Refusal(Smallest() + "min_free_disk: 1GiB\n"), HasSubstr("it belongs in section `limits`"));
}

TEST(ConfigTest, RefusesGenerateByName) {
  EXPECT_THAT(Refusal(Smallest() + "generate: {n: 2}\n"), HasSubstr("`generate` is refused"));
}

TEST(ConfigTest, RefusesFilesThatAreNoPipeline) {
  EXPECT_THAT(Refusal(""), HasSubstr("the file is empty"));
  EXPECT_THAT(Refusal("[1, 2]"), HasSubstr("must be a mapping of sections"));
  EXPECT_THAT(Refusal("work: w\nmodel: m\n"), HasSubstr("conf/p.yaml:2:8: section `model` must be a mapping"));
  EXPECT_THAT(Refusal("work: [\n"), HasSubstr("conf/p.yaml:"));
  EXPECT_THAT(Refusal("work: w\nwork: v\n"), HasSubstr("stands here twice"));
}

TEST(ConfigTest, TheReferencePageNamesEveryParameter) {
  const std::string page = ConfigurationReference();
  for (const SectionSpec& section : AllSections()) {
    for (const ParameterSpec& parameter : section.parameters)
      EXPECT_THAT(page, HasSubstr("### `" + parameter.name + "`"));
  }
}

/// A folder for one test that is removed with it.
class TargetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "draftmill-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string Path(const std::string& name) const { return (root_ / name).string(); }

  std::filesystem::path root_;
};

TEST_F(TargetTest, TheCopyInTheWorkFolderMeansTheSameFiles) {
  Write("configs/p.yaml", Smallest("../work/demo", "../models/m"));
  auto original = LoadTarget(RealFileSystem(), Path("configs/p.yaml"), {});
  ASSERT_TRUE(original.ok()) << original.status().message();
  EXPECT_EQ(original->work_folder(), Path("work/demo"));
  EXPECT_EQ(original->ConfigFolderFromWork(), "../../configs");

  Write("work/demo/pipeline.yaml", original->text());
  Write("work/demo/run.json",
        json::Write(json::Object{{std::string(kConfigFolderKey), original->ConfigFolderFromWork()}}));
  auto copy = LoadTarget(RealFileSystem(), Path("work/demo"), {});
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ(copy->CanonicalJson(), original->CanonicalJson());
  EXPECT_EQ(*WorkFolderOfTarget(RealFileSystem(), Path("work/demo"), {}), Path("work/demo"));
  EXPECT_EQ(*WorkFolderOfTarget(RealFileSystem(), Path("configs/p.yaml"), {}), Path("work/demo"));
}

TEST_F(TargetTest, RefusesWhatIsNoTarget) {
  EXPECT_THAT(LoadTarget(RealFileSystem(), Path("absent"), {}).status().message(),
              HasSubstr("no pipeline file and no work folder"));
  std::filesystem::create_directories(root_ / "empty");
  EXPECT_THAT(LoadTarget(RealFileSystem(), Path("empty"), {}).status().message(), HasSubstr("Name the pipeline file"));
  Write("broken/pipeline.yaml", Smallest());
  Write("broken/run.json", "{");
  EXPECT_THAT(LoadTarget(RealFileSystem(), Path("broken"), {}).status().message(), HasSubstr("run.json is no JSON"));
}

}  // namespace
}  // namespace draftmill

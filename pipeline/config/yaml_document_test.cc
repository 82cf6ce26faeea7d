#include "pipeline/config/yaml_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace draftmill::yaml {
namespace {

using ::testing::HasSubstr;

std::string FirstProblem(std::string_view text) {
  const Document document = ParseDocument(text);
  if (document.problems.empty()) return "none";
  const Problem& problem = document.problems.front();
  return std::to_string(problem.place.line) + ":" + std::to_string(problem.place.column) + ": " + problem.message;
}

TEST(YamlDocumentTest, KeepsPlacesQuotesAndOrder) {
  const Document document = ParseDocument("b: 'x'\na: [1, ~]\nc:\n  - d: \"\"\n");
  ASSERT_TRUE(document.problems.empty());
  ASSERT_EQ(document.root.members.size(), 3U);
  EXPECT_EQ(document.root.members[0].key, "b");
  EXPECT_TRUE(document.root.members[0].value.quoted);
  const Node& list = document.root.members[1].value;
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_FALSE(list.items[0].quoted);
  EXPECT_EQ(list.items[0].place.line, 2);
  EXPECT_EQ(list.items[0].place.column, 5);
  EXPECT_EQ(list.items[1].kind, Kind::kNull);
  EXPECT_EQ(document.root.members[2].value.items[0].members[0].value.kind, Kind::kScalar);
}

TEST(YamlDocumentTest, AnEmptyFileIsNull) {
  EXPECT_EQ(ParseDocument("").root.kind, Kind::kNull);
  EXPECT_EQ(ParseDocument("# only a comment\n").root.kind, Kind::kNull);
}

TEST(YamlDocumentTest, RefusesDuplicateKeysAllAtOnce) {
  const Document document = ParseDocument("a: 1\nb: {c: 1, c: 2}\na: 2\n");
  ASSERT_EQ(document.problems.size(), 2U);
  EXPECT_THAT(document.problems[0].message, HasSubstr("`c` stands here twice"));
  EXPECT_THAT(document.problems[1].message, HasSubstr("`a` stands here twice (first in line 1)"));
  EXPECT_EQ(document.problems[1].place.line, 3);
}

TEST(YamlDocumentTest, WritesAliasesOut) {
  const Document document = ParseDocument("a: &x [1, 2]\nb: *x\n");
  ASSERT_TRUE(document.problems.empty());
  EXPECT_EQ(document.root.members[1].value.items.size(), 2U);
}

TEST(YamlDocumentTest, BoundsAliases) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int copy = 1; copy < 10; ++copy) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_THAT(FirstProblem(bomb), HasSubstr("too large with its aliases"));
  EXPECT_THAT(FirstProblem("a: &x [*x]\n"), HasSubstr("1:8: "));
}

TEST(YamlDocumentTest, BoundsDepthAndSize) {
  EXPECT_THAT(FirstProblem(std::string(100'000, '[')), HasSubstr("nested too deeply"));
  std::string deep = "a0: &a0 [1]\n";
  for (int i = 1; i < 40; ++i)
    deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(FirstProblem(deep), HasSubstr("nested too deeply"));
  EXPECT_THAT(FirstProblem(std::string(kMaxDocumentBytes + 1, 'a')), HasSubstr("at most 1 MiB"));
}

TEST(YamlDocumentTest, RefusesWhatIsReadDifferentlyElsewhere) {
  EXPECT_THAT(FirstProblem("a: !!python/object x\n"), HasSubstr("1:4: tags such as"));
  EXPECT_THAT(FirstProblem("a: 1\n---\nb: 2\n"), HasSubstr("a second YAML document"));
  EXPECT_THAT(FirstProblem("[1]: 2\n"), HasSubstr("a key must be text"));
  EXPECT_THAT(FirstProblem("ab: \xff\n"), HasSubstr("1:5: the file is not UTF-8"));
  EXPECT_THAT(FirstProblem(std::string("a: 1\nb\0", 7)), HasSubstr("2:2: the file is not UTF-8"));
  EXPECT_THAT(FirstProblem("a: [1\n"), HasSubstr("end of sequence flow"));
  EXPECT_THAT(FirstProblem("a: 1\n b: 2\n"), HasSubstr("2:"));
}

}  // namespace
}  // namespace draftmill::yaml

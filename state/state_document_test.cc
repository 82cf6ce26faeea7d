// docs/state.md shows queries to paste: every one of them runs, on a database as a run leaves it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "state/example_state.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

/// The fenced blocks of one language, in order.
std::vector<std::string> Blocks(const std::string& document, const std::string& language) {
  std::vector<std::string> blocks;
  const std::string opening = "\n```" + language + "\n";
  for (std::size_t at = document.find(opening); at != std::string::npos; at = document.find(opening, at)) {
    at += opening.size();
    const std::size_t end = document.find("\n```", at);
    if (end == std::string::npos) break;
    blocks.push_back(document.substr(at, end - at));
    at = end;
  }
  return blocks;
}

class StateDocumentTest : public testing::Test {
 protected:
  void SetUp() override {
    // Tests run in the root of the source tree.
    const Result<std::string> document = RealFileSystem().ReadAll("docs/state.md");
    ASSERT_TRUE(document.ok()) << document.status().ToString();
    document_ = *document;
    Result<std::unique_ptr<StateWriter>> state = StateWriter::Open(folder_.path(), {.create = true});
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE(FillExample(**state, {}).ok());
    ASSERT_TRUE((*state)->Close().ok());
    Result<StateReader> reader = StateReader::Open(folder_.path());
    ASSERT_TRUE(reader.ok());
    reader_.emplace(std::move(reader).value());
  }

  TemporaryFolder folder_;
  std::string document_;
  std::optional<StateReader> reader_;
};

TEST_F(StateDocumentTest, EveryQueryRunsAndAnswers) {
  const std::vector<std::string> queries = Blocks(document_, "sql");
  EXPECT_GE(queries.size(), 10U);
  for (const std::string& sql : queries) {
    SCOPED_TRACE(sql);
    Result<sqlite::Statement> query = reader_->connection().Prepare(sql);
    ASSERT_TRUE(query.ok()) << query.status().ToString();
    const Result<bool> found = query->Step();
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_TRUE(*found) << "the example database gives it no row";
  }
}

TEST_F(StateDocumentTest, EveryTableViewAndColumnIsNamed) {
  Result<sqlite::Statement> names = reader_->connection().Prepare(
      "SELECT t.name, c.name FROM pragma_table_list AS t JOIN pragma_table_info(t.name) AS c "
      "WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite_%'");
  ASSERT_TRUE(names.ok());
  while (*names->Step()) {
    EXPECT_THAT(document_, testing::HasSubstr("`" + names->Text(0) + "`"));
    EXPECT_THAT(document_, testing::HasSubstr("`" + names->Text(1) + "`")) << "in " << names->Text(0);
  }
}

}  // namespace
}  // namespace draftmill

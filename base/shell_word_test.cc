#include "base/shell_word.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace draftmill {
namespace {

TEST(ShellWordTest, PlainTextStaysAsItIs) {
  EXPECT_EQ(ShellWord("/data/demo-1/pipeline.yaml"), "/data/demo-1/pipeline.yaml");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord(""), "''");
}

// What a shell makes of it is what it was made of.
TEST(ShellWordTest, AShellReadsItBack) {
  for (const std::string& text :
       {std::string("a b"), std::string("it's"), std::string("two\nlines"), std::string("$(false) `x` \\ \"q\""),
        std::string("~"), std::string("*?[a]"), std::string("\xc3\xbc"), std::string("#a"), std::string("a=b")}) {
    FILE* shell = ::popen(("printf %s " + ShellWord(text)).c_str(), "r");
    ASSERT_NE(shell, nullptr);
    std::string read(100, '\0');
    read.resize(std::fread(read.data(), 1, read.size(), shell));
    ::pclose(shell);
    EXPECT_EQ(read, text);
  }
}

}  // namespace
}  // namespace draftmill

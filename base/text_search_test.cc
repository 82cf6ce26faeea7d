#include "base/text_search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>

namespace draftmill {
namespace {

TEST(TextSearch, FindsWhatTheStandardLibraryFinds) {
  std::mt19937 random(7);
  const auto text_of = [&random](std::size_t bytes) {
    std::string text(bytes, 'a');
    for (char& c : text) c = random() % 4 == 0 ? 'b' : 'a';
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = text_of(random() % (i % 10 == 0 ? 2000 : 200));
    const std::string wanted = text_of(random() % (i % 2 == 0 ? 5 : 40));
    const std::size_t from = random() % 210;
    ASSERT_EQ(FindSubstring(text, wanted, from), std::string_view(text).find(wanted, from)) << text << " / " << wanted;
    ASSERT_EQ(FindLastSubstring(text, wanted), std::string_view(text).rfind(wanted)) << text << " / " << wanted;
  }
}

TEST(TextSearch, TimeIsLinear) {
  const std::string text(1 << 20, 'a');
  for (const std::size_t bytes : {std::size_t{200}, std::size_t{1} << 19}) {
    for (const bool at_end : {false, true}) {
      std::string wanted(bytes, 'a');
      (at_end ? wanted.back() : wanted.front()) = 'b';
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(FindSubstring(text, wanted), std::string_view::npos);
      EXPECT_EQ(FindLastSubstring(text, wanted), std::string_view::npos);
      // Milliseconds; comparing from the start takes minutes for the longer one.
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    }
  }
}

}  // namespace
}  // namespace draftmill

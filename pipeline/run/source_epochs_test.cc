#include "pipeline/run/source_epochs.h"

#include <gtest/gtest.h>

namespace draftmill {
namespace {

Hash128 Content(char name) { return HashBytes128(std::string(1, name)); }

/// Files by the names of their contents, each in the entry that `entries` says ("" means: one entry a file).
std::vector<FoundSource> Found(const std::string& names, const std::string& entries = "") {
  std::vector<FoundSource> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    found.push_back(
        {.spec = entries.empty() ? i : static_cast<std::size_t>(entries[i] - '0'), .content = Content(names[i])});
  }
  return found;
}

Fingerprint Parameters(const std::string& entries, const std::string& seed = "3") {
  Fingerprint parameters;
  parameters.Add("ingest.shuffle", seed);
  parameters.Add(std::string(kSourcesPart), entries);
  return parameters;
}

Fingerprint With(Fingerprint parameters, const std::string& names, const std::string& epochs = "") {
  for (std::size_t i = 0; i < names.size(); ++i) parameters.Add(SourcePartName(i), ToHex(Content(names[i])));
  if (!epochs.empty()) parameters.Add(std::string(kEpochsPart), epochs);
  return parameters;
}

/// "a0 b0 c1": the order with the epochs.
std::string Text(const std::string& names, const std::vector<OrderedSource>& order) {
  std::string text;
  for (const OrderedSource& place : order) {
    text += (text.empty() ? "" : " ") + std::string(1, names[place.found]) + std::to_string(place.epoch);
  }
  return text;
}

TEST(SourceEpochs, AFirstStartHasOne) {
  EXPECT_EQ(Text("ba", OrderSources(Found("ba"), Parameters("[{},{}]"), {}, false)), "b0 a0");
}

TEST(SourceEpochs, AddedFilesFollowWhereverTheyStand) {
  const Fingerprint known = With(Parameters("[{},{}]"), "ab");
  EXPECT_EQ(Text("abc", OrderSources(Found("abc"), Parameters("[{},{},{}]"), known, true)), "a0 b0 c1");
  EXPECT_EQ(Text("cab", OrderSources(Found("cab"), Parameters("[{},{},{}]"), known, true)), "a0 b0 c1");
  // In a folder: one entry, and the new file's name sorts between the others.
  const Fingerprint folder = With(Parameters("[{}]"), "ab");
  EXPECT_EQ(Text("acb", OrderSources(Found("acb", "000"), Parameters("[{}]"), folder, true)), "a0 b0 c1");
}

TEST(SourceEpochs, EpochsStayAndFurtherOnesFollow) {
  const Fingerprint known = With(Parameters("[{}]"), "abc", "2+1");
  EXPECT_EQ(Text("cab", OrderSources(Found("cab", "000"), Parameters("[{}]"), known, true)), "a0 b0 c1");
  EXPECT_EQ(Text("dcab", OrderSources(Found("dcab", "0000"), Parameters("[{}]"), known, true)), "a0 b0 c1 d2");
  // What is marked to be done again keeps them as well.
  EXPECT_EQ(Text("cab", OrderSources(Found("cab", "000"), Parameters("[{}]"), known, false)), "a0 b0 c1");
}

TEST(SourceEpochs, AnyOtherChangeMakesOneEpochOfAll) {
  const Fingerprint known = With(Parameters("[{},{}]"), "abc", "2+1");
  EXPECT_EQ(Text("acd", OrderSources(Found("acd"), Parameters("[{},{},{}]"), known, true)), "a0 c0 d0");
  EXPECT_EQ(Text("bac", OrderSources(Found("bac"), Parameters("[{},{},{}]"), known, true)), "b0 a0 c0");
  const Fingerprint two = With(Parameters("[{},{}]"), "ab");
  EXPECT_EQ(Text("abc", OrderSources(Found("abc"), Parameters("[{},{},{}]", "4"), two, true)), "a0 b0 c0");
  EXPECT_EQ(Text("abc", OrderSources(Found("abc"), Parameters("[{},{},{}]"), two, false)), "a0 b0 c0");
  // The entry of `a` takes something else now.
  EXPECT_EQ(Text("abc", OrderSources(Found("abc"), Parameters("[{\"take\":5},{},{}]"), two, true)), "a0 b0 c0");
  EXPECT_EQ(Text("abc", OrderSources(Found("abc"), Parameters("[{},{},{\"take\":5}]"), two, true)), "a0 b0 c1");
}

TEST(SourceEpochs, OnlyAnExtensionIsOne) {
  const Fingerprint one = With(Parameters("[{}]"), "ab");
  const Fingerprint two = With(Parameters("[{},{}]"), "abc", "2+1");
  EXPECT_TRUE(IsExtension(Diff(one, two)));
  EXPECT_TRUE(IsExtension(Diff(two, With(Parameters("[{},{}]"), "abcde", "2+1+2"))));
  EXPECT_FALSE(IsExtension(Diff(two, one)));
  EXPECT_FALSE(IsExtension(Diff(one, With(Parameters("[{},{}]"), "abc"))));
  EXPECT_FALSE(IsExtension(Diff(one, With(Parameters("[{},{}]", "4"), "abc", "2+1"))));
  EXPECT_FALSE(IsExtension(Diff(two, With(Parameters("[{},{}]"), "abxd", "2+1+1"))));
  EXPECT_FALSE(IsExtension(Diff(one, one)));
}

TEST(SourceEpochs, SizesComeFromThePartOrTheContents) {
  EXPECT_EQ(EpochSizes(With(Parameters("[]"), "abc", "2+1")), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(EpochSizes(With(Parameters("[]"), "abc")), (std::vector<std::int64_t>{3}));
  EXPECT_TRUE(EpochSizes({}).empty());
  for (const char* broken : {"2+", "+1", "2-1", "0+1", "x", "99999999999999999999"}) {
    EXPECT_TRUE(EpochSizes(With(Parameters("[]"), "abc", broken)).empty()) << broken;
  }
}

}  // namespace
}  // namespace draftmill

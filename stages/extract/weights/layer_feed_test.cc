#include "stages/extract/weights/layer_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

namespace draftmill {
namespace {

constexpr std::int64_t kLayers = 5;

/// Counts how often each layer is read; a view's `vectors` points at the layer's number.
class CountingStore : public WeightStore<Bf16> {
 public:
  Result<LayerView<Bf16>> Acquire(std::int64_t layer) override {
    EXPECT_EQ(held_, -1) << "more than one layer is held";
    if (layer == fails_at) return IoError("planted");
    held_ = layer;
    ++reads[layer];
    return LayerView<Bf16>{nullptr, &numbers_[layer], nullptr, nullptr};
  }
  void Release(std::int64_t layer) override {
    EXPECT_EQ(held_, layer);
    held_ = -1;
  }
  Status EmbeddingRows(std::span<const std::int32_t>, Bf16*) override { return OkStatus(); }
  Status HeadRows(std::int64_t, std::int64_t, Bf16*) override { return OkStatus(); }
  const float* final_norm() const override { return nullptr; }
  const std::string& digest() const override { return digest_; }

  std::map<std::int64_t, int> reads;
  std::int64_t fails_at = -1;

 private:
  std::int64_t held_ = -1;
  std::map<std::int64_t, float> numbers_ = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}};
  const std::string digest_;
};

/// A reader's laps; false where the feed failed.
bool Laps(LayerFeed& feed, int reader, int laps) {
  for (int lap = 0; lap < laps; ++lap) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const Result<LayerView<Bf16>> view = feed.Take(reader, layer);
      if (!view.ok()) return false;
      EXPECT_EQ(*view->vectors, static_cast<float>(layer));
      if (reader == 1) std::this_thread::sleep_for(std::chrono::microseconds(200));
      EXPECT_EQ(*view->vectors, static_cast<float>(layer)) << "it was taken away while it was copied";
      feed.Done(reader);
    }
  }
  return true;
}

class LayerFeedTest : public testing::Test {
 protected:
  std::shared_ptr<CountingStore> store_ = std::make_shared<CountingStore>();
};

TEST_F(LayerFeedTest, AllReadersTakeOneStream) {
  LayerFeed feed(store_, kLayers, 3, std::chrono::seconds(20));
  std::vector<std::thread> threads;
  for (int reader = 0; reader < 3; ++reader) threads.emplace_back([&, reader] { EXPECT_TRUE(Laps(feed, reader, 4)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& [layer, count] : store_->reads) EXPECT_EQ(count, 4) << "layer " << layer;
}

TEST_F(LayerFeedTest, AReaderWithoutWorkHoldsNobodyUp) {
  LayerFeed feed(store_, kLayers, 2, std::chrono::milliseconds(5));
  std::thread other([&] { EXPECT_TRUE(Laps(feed, 1, 1)); });
  EXPECT_TRUE(Laps(feed, 0, 6));
  other.join();
  EXPECT_TRUE(Laps(feed, 1, 2));
}

TEST_F(LayerFeedTest, AReaderThatLeavesMidLapHoldsNobodyUp) {
  LayerFeed feed(store_, kLayers, 2, std::chrono::seconds(20));
  std::thread other([&] {
    ASSERT_TRUE(feed.Take(1, 0).ok());
    feed.Done(1);
    ASSERT_TRUE(feed.Take(1, 1).ok());
    feed.Leave(1);
  });
  EXPECT_TRUE(Laps(feed, 0, 1));
  other.join();
  // It may come back.
  std::thread again([&] { EXPECT_TRUE(Laps(feed, 1, 1)); });
  EXPECT_TRUE(Laps(feed, 0, 1));
  again.join();
}

TEST_F(LayerFeedTest, AFailureOfTheStoreIsEveryReaders) {
  store_->fails_at = 2;
  LayerFeed feed(store_, kLayers, 2, std::chrono::seconds(20));
  std::thread other([&] { EXPECT_FALSE(Laps(feed, 1, 1)); });
  EXPECT_FALSE(Laps(feed, 0, 1));
  other.join();
}

}  // namespace
}  // namespace draftmill

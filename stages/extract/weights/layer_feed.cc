#include "stages/extract/weights/layer_feed.h"

#include <algorithm>
#include <utility>

namespace draftmill {

LayerFeed::LayerFeed(std::shared_ptr<WeightStore<Bf16>> store, std::int64_t layers, int readers,
                     std::chrono::milliseconds grace)
    : store_(std::move(store)), layers_(layers), grace_(grace), readers_(static_cast<std::size_t>(readers)) {}

Result<LayerView<Bf16>> LayerFeed::Take(int reader, std::int64_t layer) {
  std::unique_lock lock(mutex_);
  if (layer == 0) Join(reader, lock);
  if (layer == 1) BeginLap(lock);
  changed_.wait(lock, [&] { return !failure_.ok() || current_ == layer || AllDoneWith(layer - 1); });
  if (failure_.ok() && current_ != layer) failure_ = Show(layer);
  changed_.notify_all();
  if (!failure_.ok()) return failure_;
  return view_;
}

void LayerFeed::Join(int reader, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !begun_ || !failure_.ok(); });
  const bool is_first = std::none_of(readers_.begin(), readers_.end(), [](const Reader& each) { return each.on_lap; });
  if (is_first) first_joined_ = std::chrono::steady_clock::now();
  At(reader) = {true, -1};
  changed_.notify_all();
}

void LayerFeed::BeginLap(std::unique_lock<std::mutex>& lock) {
  const auto all_joined = [&] {
    return begun_ || !failure_.ok() ||
           std::all_of(readers_.begin(), readers_.end(), [](const Reader& each) { return each.on_lap; });
  };
  changed_.wait_until(lock, first_joined_ + grace_, all_joined);
  begun_ = true;
}

bool LayerFeed::AllDoneWith(std::int64_t layer) const {
  return std::all_of(readers_.begin(), readers_.end(),
                     [layer](const Reader& each) { return !each.on_lap || each.done >= layer; });
}

/// Goes on to a layer; the disk is waited for under the lock, since nobody has anything else to do.
Status LayerFeed::Show(std::int64_t layer) {
  if (current_ >= 0) store_->Release(std::exchange(current_, -1));
  DRAFTMILL_ASSIGN_OR_RETURN(view_, store_->Acquire(layer));
  current_ = layer;
  return OkStatus();
}

void LayerFeed::Done(int reader) {
  const std::lock_guard lock(mutex_);
  At(reader).done = current_;
  if (current_ == layers_ - 1) At(reader).on_lap = false;
  EndLapIfOver();
}

void LayerFeed::Leave(int reader) {
  const std::lock_guard lock(mutex_);
  At(reader).on_lap = false;
  EndLapIfOver();
}

void LayerFeed::EndLapIfOver() {
  const bool is_over = std::none_of(readers_.begin(), readers_.end(), [](const Reader& each) { return each.on_lap; });
  if (is_over) {
    if (current_ >= 0) store_->Release(std::exchange(current_, -1));
    begun_ = false;
  }
  changed_.notify_all();
}

}  // namespace draftmill

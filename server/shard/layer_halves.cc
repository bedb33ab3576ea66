#include "server/shard/layer_halves.h"

#include <utility>

#include "common/codec/update_reader.h"

namespace tessera {
namespace {

// As ExampleMean's, so that a mean of as many has the same bits.
float ScaleOf(uint64_t summed) { return 1.0f / static_cast<float>(summed); }

}  // namespace

LayerHalves::LayerHalves(std::shared_ptr<const LayerParts> parts) : parts_(std::move(parts)) {
  front_.run = {parts_->front().begin, parts_->front().end};
  back_.run = {parts_->back().begin, parts_->back().end};
}

LayerHalves::Half* LayerHalves::Of(const LayerPart& part) {
  if (part.entries() == 0) return nullptr;
  return &part == &parts_->front() ? &front_ : &back_;
}

void LayerHalves::Fold(const Push& push, std::vector<float>* pending) {
  Half* const half = Of(*push.part);
  if (half == nullptr) return;
  UpdateReader reader(push.codec, push.keys, *push.payload);
  FoldRun(half->run, half->summed == 0, /*weight=*/1, &reader, pending);
  half->summed += push.summed;
}

void LayerHalves::Commit(Update update, const std::vector<float>& pending,
                         const UpdateTarget& target) {
  for (Half* const half : {&front_, &back_}) {
    if (half->summed == 0) continue;
    update.scale = ScaleOf(std::exchange(half->summed, 0));
    ApplyRun(half->run, update, pending, target);
  }
}

void LayerHalves::FoldAndCommit(const Push& push, Update update, std::vector<float>* pending,
                                const UpdateTarget& target) {
  if (Half* const half = Of(*push.part); half != nullptr) {
    const uint64_t before = std::exchange(half->summed, 0);
    update.scale = ScaleOf(before + push.summed);
    UpdateReader reader(push.codec, push.keys, *push.payload);
    FoldAndApplyRun(half->run, before == 0, /*weight=*/1, &reader, update, pending, target);
  }
  Commit(update, *pending, target);
}

}  // namespace tessera

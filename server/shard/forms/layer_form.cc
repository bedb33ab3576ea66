#include "server/shard/forms/layer_form.h"

#include <utility>

#include "common/base/check.h"
#include "common/codec/update_reader.h"
#include "server/shard/forms/form_entry.h"

namespace tessera {
namespace {

// The scale that ExampleMean has, so that a mean of as many has the same bits.
float ScaleOf(uint64_t summed) { return 1.0f / static_cast<float>(summed); }

}  // namespace

LayerForm::LayerForm(FormContext context, const LayerParts& parts)
    : DenseForm(std::move(context), /*is_tail=*/false) {
  TESSERA_CHECK(this->context().collecting() != Exchange(0) && !this->context().is_replica);
  front_.run = *parts.front().run();
  back_.run = *parts.back().run();
}

// Finds the half that a push is of; nullptr where this server owns nothing of it.
LayerForm::Half* LayerForm::Of(const StagedPush& push) {
  if (push.entries->count() == 0) return nullptr;
  return push.entries->run()->end <= front_.run.end ? &front_ : &back_;
}

void LayerForm::Fold(const StagedPush& push, float) {
  Half* const half = Of(push);
  if (half == nullptr) return;
  UpdateReader reader(push.codec, push.coded, push.payload);
  FoldRun(half->run, half->summed == 0, /*weight=*/1, &reader, sum());
  half->summed += push.summed;
}

// Each half is a mean over its own pushes: workers with data and linear workers differ in number.
void LayerForm::Commit(const Update& update) {
  for (Half* const half : {&front_, &back_}) {
    if (half->summed == 0) continue;
    Update own = update;
    own.scale = ScaleOf(std::exchange(half->summed, 0));
    ApplyRun(half->run, own, *sum(), target());
  }
}

void LayerForm::FoldAndCommit(const StagedPush& push, float, const Update& update) {
  if (Half* const half = Of(push); half != nullptr) {
    const uint64_t before = std::exchange(half->summed, 0);
    Update own = update;
    own.scale = ScaleOf(before + push.summed);
    UpdateReader reader(push.codec, push.coded, push.payload);
    FoldAndApplyRun(half->run, before == 0, /*weight=*/1, &reader, own, sum(), target());
  }
  // The half that this push is not of is committed, too: an update is of both.
  Commit(update);
}

extern const FormEntry kLayerForm = {
    [](const ShardOptions& o) { return o.cut.has_value(); },
    [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
      return std::make_shared<const LayerParts>(*o.cut, slices, o.shape, o.codecs);
    },
    [](const FormContext& context, const ShardOptions&) -> std::unique_ptr<ExchangeForm> {
      return std::make_unique<LayerForm>(context,
                                         static_cast<const LayerParts&>(*context.traits->keys));
    }};

}  // namespace tessera

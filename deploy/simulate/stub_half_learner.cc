#include "deploy/simulate/stub_half_learner.h"

#include "common/base/check.h"
#include "worker/activations/activation_exchange.h"

namespace tessera {

StubHalfLearner::Surroundings::Surroundings(const ModelShape& shape, const LayerSplit& layers,
                                            int servers, int64_t batch_size, bool has_classes,
                                            const StubArrays* of_parameters)
    : split(layers),
      arrays(of_parameters),
      front(LayerKeys(shape, ShardingOf(split, servers), split.cut.front())),
      back(LayerKeys(shape, ShardingOf(split, servers), split.cut.back())),
      nothing(LayerKeys(shape, ShardingOf(split, servers), {})),
      activations(
          static_cast<size_t>(batch_size * shape.widths[static_cast<size_t>(split.cut.layer)])) {
  if (has_classes) {
    classes.resize(static_cast<size_t>(batch_size));
  } else {
    targets.resize(static_cast<size_t>(batch_size * shape.outputs()));
  }
}

absl::StatusOr<Losses> StubHalfLearner::Train(const Dataset&, absl::Span<const uint32_t> rows,
                                              const TrainPoint& point) {
  TESSERA_CHECK(point.waits != nullptr);
  summed_ = 0;
  return ends_.sender != nullptr ? TrainFront(rows.size(), point) : TrainLinear(point);
}

absl::StatusOr<Losses> StubHalfLearner::TrainFront(size_t rows, const TrainPoint& point) {
  ActivationBatch batch;
  batch.step = point.step;
  batch.plan = point.plan;
  batch.rows = static_cast<int64_t>(rows);
  batch.activations = around_.activations;
  batch.classes = around_.classes;
  batch.targets = around_.targets;
  point.waits->BeginWait();
  const absl::StatusOr<ActivationAnswer> answer = ends_.sender->Exchange(batch);
  point.waits->EndWait();
  TESSERA_RETURN_IF_ERROR(answer.status());
  if (answer->too_late) return Losses();
  summed_ = 1;
  return Losses{answer->loss};
}

absl::StatusOr<Losses> StubHalfLearner::TrainLinear(const TrainPoint& point) {
  while (true) {
    point.waits->BeginWait();
    const absl::StatusOr<const ActivationReceiver::Batch*> batch =
        ends_.receiver->Next(point.step, point.plan);
    point.waits->EndWait();
    TESSERA_RETURN_IF_ERROR(batch.status());
    if (*batch == nullptr) return Losses();
    ends_.receiver->Answer(1.0, around_.activations);
    ++summed_;
  }
}

}  // namespace tessera

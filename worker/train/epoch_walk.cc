#include "worker/train/epoch_walk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/method/train_rows.h"

namespace tessera {
namespace {

// Of a job without data, whose workers read rows of their own, there is nothing to part.
Partition PartitionOf(const v1::Job& job) {
  if (!job.has_data()) return Partition::kGlobal;
  const absl::StatusOr<Partition> partition = ParsePartition(job.data().partition());
  TESSERA_CHECK(partition.ok());  // The job reader lets no other name through.
  return *partition;
}

}  // namespace

EpochWalk::EpochWalk(const v1::Job& job, const Recipe& recipe, Rank rank, const Place& place,
                     OrderCache* orders, const Dataset* rows, Coordination* coordination)
    : job_(job),
      lockstep_(recipe.lockstep),
      reads_rows_(rows->rows() > 0 && (!recipe.split || !recipe.split->is_linear(rank))),
      rank_(rank),
      data_(*rows),
      coordination_(*coordination),
      order_({PartitionOf(job), job.seed(), std::max<int64_t>(1, rows->rows()),
              std::max<int64_t>(1, job.train().batch_size()), orders}),
      ahead_(rows),
      place_(place) {}

bool EpochWalk::Finished() const {
  const v1::Train& train = job_.train();
  if (train.steps() > 0) return place_.step >= static_cast<uint64_t>(train.steps());
  return place_.epoch >= static_cast<uint64_t>(train.epochs());
}

uint64_t EpochWalk::StepsLeft() const {
  if (Finished()) return 0;
  const v1::Train& train = job_.train();
  if (train.steps() > 0) return static_cast<uint64_t>(train.steps()) - place_.step;
  const auto steps = static_cast<uint64_t>(place_.cut.steps);
  return place_.cut.first_step + steps - place_.step +
         (static_cast<uint64_t>(train.epochs()) - place_.epoch - 1) * steps;
}

bool EpochWalk::EvaluatesAfter(uint64_t epochs) const {
  const uint64_t every = job_.train().evaluate_every();
  return every > 0 && epochs % every == 0;
}

absl::StatusOr<int> EpochWalk::BeginEpoch() {
  int missed = 0;
  // Epochs get shorter as workers join: one that joins late may begin past the epoch that it was told.
  for (; !Finished(); ++place_.epoch) {
    TESSERA_ASSIGN_OR_RETURN(place_.cut, coordination_.BeginEpoch(place_.epoch, place_.step));
    const uint64_t end = place_.cut.first_step + static_cast<uint64_t>(place_.cut.steps);
    if (place_.step < end) break;
    // The others have yet to come to this end. In lockstep they are past it, or expect nobody.
    if (!lockstep_ && EvaluatesAfter(place_.epoch + 1)) ++missed;
    if (place_.epoch + 1 == static_cast<uint64_t>(job_.train().epochs())) place_.step = end;
  }
  return missed;
}

absl::Status EpochWalk::BeginOrder() {
  if (!reads_rows_) return absl::OkStatus();
  const EpochCut& cut = place_.cut;
  const int64_t rows_max = MinibatchRowsMax(job_);
  const int64_t of_all = cut.parts * job_.train().batch_size();
  if (cut.batch_rows > rows_max || cut.rows_before + cut.batch_rows > of_all) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch ", place_.epoch, ": worker ", rank_.value(), " is given ",
                     cut.batch_rows, " rows of a step behind ", cut.rows_before, ", want at most ",
                     rows_max, ", and all of them within ", of_all));
  }
  EpochPlace place;
  place.epoch = place_.epoch;
  place.rank = rank_;
  place.part = cut.part;
  place.parts = cut.parts;
  place.rows_total = cut.rows_total;
  place.batch_rows = cut.batch_rows;
  place.rows_before = cut.rows_before;
  TESSERA_RETURN_IF_ERROR(order_.Begin(place));
  ahead_.Begin();
  if (order_.steps() == cut.steps) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "data: worker ", rank_.value(), " has ", data_.rows(), " training rows, which makes ",
      order_.steps(), " steps an epoch, want ", cut.steps,
      " as the other workers have, or had when the checkpoint was saved; the training files differ "
      "(between workers data.partition: local allows that)"));
}

absl::Span<const uint32_t> EpochWalk::NextRows() {
  next_rows_.clear();
  if (reads_rows_ && step_in_epoch() + 1 < static_cast<uint64_t>(place_.cut.steps)) {
    const absl::Span<const uint32_t> next = order_.Rows(step_in_epoch() + 1);
    next_rows_.assign(next.begin(), next.end());
  }
  return next_rows_;
}

absl::Span<const uint32_t> EpochWalk::Rows() {
  TESSERA_CHECK(step_in_epoch() < static_cast<uint64_t>(place_.cut.steps));
  if (!reads_rows_) return {};
  ahead_.Advance(static_cast<int64_t>(step_in_epoch()), place_.epoch, &order_);
  return order_.Rows(step_in_epoch());
}

bool EpochWalk::EndStep() {
  ++place_.step;
  return step_in_epoch() >= static_cast<uint64_t>(place_.cut.steps);
}

absl::Status EpochWalk::GoBackTo(const Place& place) {
  const bool is_same = place_.epoch == place.epoch;
  place_.step = place.step;
  if (is_same) return absl::OkStatus();
  place_ = place;
  return BeginOrder();
}

}  // namespace tessera

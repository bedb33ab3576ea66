// Which part of the data is whose, epoch by epoch.
//
// The first worker that begins an epoch fixes its cut for all: the members of that moment in rank
// order that train on data, and floor(N / (K B)) minibatches for each, where N is the number of training rows (all
// workers' together where rows are local), K the number of members and B the batch size. Epoch
// e + 1 begins at the step where epoch e ends. In a job of tensors, whose rows nobody here knows, an epoch has
// train.steps_per_epoch minibatches, or those of the whole job, and rows_total is 0.
//
// Where rows are dealt by speed members have minibatches of different sizes in an epoch, whose mean is B, by the speeds
// that are known when it is cut (members/batch_sizes.h): the first one is cut equally.
//
// Epochs that were cut alike are kept as one run of them, so that what is kept grows with members that come and go,
// and not with what anybody asks for.
#ifndef TESSERA_SERVER_CONTROL_EPOCHS_H_
#define TESSERA_SERVER_CONTROL_EPOCHS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"
#include "server/control/saved_job.h"

namespace tessera {

// What a job that goes on from `saved` says of train.batch_size, or of train.steps_per_epoch, which cuts the epochs.
//   kFailedPrecondition  it is another one than before, and somebody is in the midst of an epoch
absl::Status CheckBatchSize(const SavedState& saved, const JobFacts& facts);

class Epochs {
 public:
  explicit Epochs(const JobFacts& facts) : facts_(facts) {}

  // The cut of `epoch` for `asker`, an admitted member that begins it at `step`. A worker that joined after the
  // cut was made gets the part of the lost member whose rank it took over, or none (part = parts); in a job of
  // tensors, where no rows were dealt out, it gets any. Earlier cuts that all members are past are forgotten, unless
  // somebody may have saved that it is there (`keeps_all`).
  //   kInvalidArgument     an epoch after the next one, or one that all have finished; the next one, which begins
  //                        after `step`
  //   kFailedPrecondition  fewer rows than one minibatch for each
  absl::StatusOr<v1::EpochCut> Begin(const MemberRecord& asker, uint64_t epoch, uint64_t step,
                                     const MemberTable& members, bool keeps_all);

  // The cuts of the epochs that members at steps `least` to `most` are in, and their inverse: whoever has a
  // rank of a saved cut has its place. Forgets what was cut before. At most kSavedCutsMax + 1 of them, which
  // cannot be read again.
  std::vector<SavedCut> Save(uint64_t least, uint64_t most) const;
  // Cuts of epochs that nobody at `step` has begun are forgotten where they would be others now.
  void Restore(const std::vector<SavedCut>& cuts, uint64_t step);

  // Cuts that were made, and who was told: all of it. Of each run the first epoch is written, and the last one of
  // the last run; those between are cut as the one before them.
  v1::EpochsState SaveAll() const;
  //   kInvalidArgument  an epoch has no steps, or does not begin where the one before it ends
  absl::Status Load(const v1::EpochsState& state, const MemberTable& members);
  // Grows with every cut.
  uint64_t changes() const { return changes_; }

  // The epoch in which a worker with `step` minibatches behind it is: the next one if its cut is
  // not made yet.
  uint64_t EpochOf(uint64_t step) const;
  // The least step that is in an epoch still known.
  uint64_t FirstStep() const { return cuts_.empty() ? 0 : cuts_.begin()->second.first_step; }
  // Where the last epoch that is cut ends.
  uint64_t EndStep() const { return cuts_.empty() ? 0 : cuts_.rbegin()->second.end(); }
  // Epochs done at `step`, with the fraction.
  double EpochsDone(uint64_t step) const;
  // Minibatches per worker in the whole job, if members stay as they are; 0: not known yet.
  uint64_t StepsPlanned() const;

 private:
  struct Seat {
    MemberId member;
    Rank rank;
    int64_t batch_rows = 0;  // of each of its minibatches; 0: as the job says
    bool operator==(const Seat& other) const {
      return member == other.member && rank == other.rank && batch_rows == other.batch_rows;
    }
  };
  // A run of epochs.
  struct Cut {
    std::vector<Seat> seats;
    uint64_t steps = 0;       // of each
    uint64_t first_step = 0;  // of the first
    uint64_t rows_total = 0;
    uint64_t epochs = 1;

    // The first step of the epoch that so many of the run are before.
    uint64_t BeginOf(uint64_t index) const { return first_step + index * steps; }
    uint64_t end() const { return BeginOf(epochs); }
    bool IsLike(const Cut& other) const {
      return steps == other.steps && rows_total == other.rows_total && seats == other.seats;
    }
  };

  absl::StatusOr<Cut> MakeCut(uint64_t epoch, const MemberTable& members) const;
  // Sizes of minibatches for the seats of `cut`, which follows the last one that was made.
  void DealBySpeed(const MemberTable& members, Cut* cut) const;
  // Whether these seats may be given minibatches of these sizes, which are all 0 or none.
  bool AreSizes(const std::vector<Seat>& seats) const;
  // The minibatches that so many rows are for each of `seats`.
  absl::StatusOr<uint64_t> StepsOfRows(uint64_t epoch, uint64_t rows, size_t seats) const;
  // The next epoch.
  void Append(Cut cut);
  uint64_t NextEpoch() const {
    return cuts_.empty() ? 0 : cuts_.rbegin()->first + cuts_.rbegin()->second.epochs;
  }
  static void Write(uint64_t epoch, uint64_t first_step, const Cut& cut, v1::EpochsState* state);
  void Prune(const MemberTable& members);

  const JobFacts& facts_;
  // By their first epoch, without gaps. Epochs that every member has finished are dropped.
  std::map<uint64_t, Cut> cuts_;
  std::map<MemberId, uint64_t> asked_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_EPOCHS_H_

// How learning rates change as a job goes on: warm-up x decay, both counted in the examples that
// the whole job has learned from, so that a schedule means the same for any number of workers.
#ifndef TESSERA_COMMON_RULE_SCHEDULE_H_
#define TESSERA_COMMON_RULE_SCHEDULE_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace tessera {

class RateSchedule {
 public:
  // A schedule whose factor is always 1.
  RateSchedule() = default;
  explicit RateSchedule(const v1::Schedule& schedule) : schedule_(schedule) {}

  // Whether the factor is 1 always.
  bool is_constant() const;

  // What the rate of an update is multiplied by. The job had learned from `before` examples, and
  // the update brings `own` more.
  //   warm-up      min(1, (before + own) / warmup): never 0, 1 from the update that fills it
  //   step         factor ^ floor(before / every)
  //   cosine       floor + (1 - floor) (1 + cos(pi min(1, before / examples))) / 2
  //   milestones   factor ^ (how many of `at` are at most `before`)
  //   linear       1 - (1 - floor) min(1, before / examples)
  double Factor(uint64_t before, uint64_t own) const;

 private:
  v1::Schedule schedule_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_SCHEDULE_H_

// Random schedules: pushes, reads, removals, joins, rests and time in any order that workers could
// bring about.
#ifndef TESSERA_TESTS_COMMON_CONSISTENCY_SCHEDULE_H_
#define TESSERA_TESTS_COMMON_CONSISTENCY_SCHEDULE_H_

#include <cstdint>
#include <string>

#include "common/consistency/policy.h"

namespace tessera {

struct ScheduleOptions {
  int moves = 60;
  int members_max = 6;
  bool joins = true;
  bool rests = true;
  // In half of the schedules the first members go on from where a checkpoint left each.
  bool checkpoints = true;
  // Beside verdicts and what is due, all other answers are compared as well.
  bool all_answers = true;
};

// Puts both policies through the schedule of `seed`, and says where their answers first differ, or
// where `one` makes all members wait for ever; empty if nowhere. Members push only when `one` lets
// them read, and in the order that it wants.
std::string Difference(uint64_t seed, const ScheduleOptions& options, ConsistencyPolicy* one,
                       ConsistencyPolicy* other);

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CONSISTENCY_SCHEDULE_H_

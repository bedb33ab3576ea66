// What `tessera run --report` wrote of jobs on a GPU, as tables on stdout.
#ifndef TESSERA_BENCH_GPU_REPORTS_H_
#define TESSERA_BENCH_GPU_REPORTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera {

// A line for each NAME=FILE. Of jobs that are called in_turn_N and overlap_N, with an exchange every N local
// steps, the first in_turn says how long an exchange takes. What is waited where computing hides as much of
// that as it lasts is the least there can be, and stands beside each overlap. Where two overlaps tell their steps, a
// step computes for what the longest of them computes more than the shortest, per step.
//   kInvalidArgument  a file is no report
//   kInternal         a job has failed, or lost a worker: its line is not there
absl::Status PrintReports(const std::vector<std::string>& reports);

// Two reports of one job on different devices: the same traffic to the byte, and nearly the same training losses, at
// each evaluation and in the end. How far they are apart is told, of test losses as well.
//   kInvalidArgument  not two, or no reports
//   kInternal         they differ, or a job has failed, or lost a worker
absl::Status CompareReports(const std::vector<std::string>& paths);

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_REPORTS_H_

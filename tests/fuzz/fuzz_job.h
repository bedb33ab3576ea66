// Small jobs of every method, and what servers make of them: what fuzz targets of servers begin with.
#ifndef TESSERA_TESTS_FUZZ_FUZZ_JOB_H_
#define TESSERA_TESTS_FUZZ_FUZZ_JOB_H_

#include <memory>
#include <string>
#include <vector>

#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "server/control/job_facts.h"
#include "server/shard/shard.h"

namespace tessera {

struct FuzzJob {
  v1::Job job;
  Recipe recipe;
  ModelShape shape;
  std::string digest;
  JobFacts facts;

  // Server 0's, as server_process.cc makes it.
  std::unique_ptr<Shard> MakeShard() const;
};

// Of each method and codec one, always in the same order; made once.
const std::vector<FuzzJob>& FuzzJobs();

// Members 1 to `members` from exchange 1 on; their ranks count from 0.
Plan FuzzPlan(uint64_t generation, int members);

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_FUZZ_JOB_H_

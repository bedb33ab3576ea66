// The control plane of any job under any sequence of messages and delays: coordinator_events.h.
//
//   input = job(1) begun(1) (event(1) choices)*
#include <utility>
#include <vector>

#include "tests/fuzz/coordinator_events.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  const FuzzJob& job = jobs[input.Below(jobs.size())];
  const absl::Time now = absl::FromUnixSeconds(1000);
  CoordinatorEvents events(job, &input, Coordinator::Create(job.facts, now).value(), now);
  if (input.Bit()) events.Begin();
  events.Run();
  return 0;
}

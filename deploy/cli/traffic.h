// What a job's exchanges will move, as far as the job alone says.
#ifndef TESSERA_DEPLOY_CLI_TRAFFIC_H_
#define TESSERA_DEPLOY_CLI_TRAFFIC_H_

#include <cstdint>
#include <string>

#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// Payload bytes of one exchange of one worker, one way, with all servers.
struct TrafficForecast {
  enum class Certainty { kExact, kAbout, kAtMost, kUnknown };
  int64_t bytes = 0;  // the mean over exchanges
  Certainty certainty = Certainty::kExact;
};

// "153608 bytes", "about 307214 bytes", "what grows to tau".
std::string Describe(const TrafficForecast& forecast);

// All that a worker has on the servers: of subnets the part of site 0 in round 1.
KeySet WorkerKeys(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);

// `shape` is of what is exchanged (ExchangedShape). A subnet's are those of site 0 in round 1, where all have the
// same share.
TrafficForecast PushForecast(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);
TrafficForecast PullForecast(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_TRAFFIC_H_

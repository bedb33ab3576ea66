// What a job's exchanges will move, as far as the job alone says.
#ifndef TESSERA_DEPLOY_CLI_PLAN_TRAFFIC_H_
#define TESSERA_DEPLOY_CLI_PLAN_TRAFFIC_H_

#include <cstdint>
#include <string>

#include "common/codec/forecast.h"
#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// Payload bytes of one exchange of one worker, one way, with all servers: the mean over exchanges.
using TrafficForecast = PayloadForecast;

// "153608 bytes", "about 307214 bytes", "what grows to tau".
std::string Describe(const TrafficForecast& forecast);

// The entries that a worker exchanges with the servers: of subnets the part of site 0 in round 1.
KeySet WorkerKeys(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);

// `shape` is of what is exchanged (ExchangedShape). A subnet's are those of site 0 in round 1, where all have the
// same share: exact where all parts then have one size, and keep it. Where workers have halves of the layers it is
// the mean over the workers.
TrafficForecast PushForecast(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);
TrafficForecast PullForecast(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);

// The traffic of one worker that has this half, where workers have halves of the layers, for a minibatch of each
// worker with data.
struct HalfForecast {
  KeySet keys;
  TrafficForecast push, pull;
};
HalfForecast ForecastOfHalf(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                            bool is_linear);
// The bytes that a worker with data sends of a whole minibatch, with its labels, and gets back.
struct ActivationForecast {
  int64_t there_bytes = 0;
  int64_t back_bytes = 0;
};
ActivationForecast ForecastOfActivations(const v1::Job& job, const LayerSplit& split,
                                         const ModelShape& shape);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_TRAFFIC_H_

// Who a simulated client is, and how what it exchanges is written.
#ifndef TESSERA_DEPLOY_SIMULATE_CLIENT_OPTIONS_H_
#define TESSERA_DEPLOY_SIMULATE_CLIENT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/layout/layer_cut.h"

namespace tessera {

struct SimulatedClientOptions {
  int machine = 0;
  MemberId member;
  int kind = 0;  // v1::PayloadKind
  CodecChoice codecs;
  // The job's, and whose random numbers.
  uint64_t seed = 0;
  Rank rank;
  // If set, its pushes are of these layers, or of none.
  std::optional<ParameterRange> layers;
  std::string job_digest;
  // False: nobody looks at pulled values, and updates are known to be finite.
  bool moves_values = true;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_CLIENT_OPTIONS_H_

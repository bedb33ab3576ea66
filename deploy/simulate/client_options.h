// Who a simulated client is, and how what it exchanges is written.
#ifndef TESSERA_DEPLOY_SIMULATE_CLIENT_OPTIONS_H_
#define TESSERA_DEPLOY_SIMULATE_CLIENT_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/layout/layer_cut.h"
#include "common/layout/shard_map.h"

namespace tessera {

struct SimulatedClientOptions {
  bool is_replicated() const { return placement == Placement::kReplicated; }
  // A push goes to it so that it does not fall behind the server beside this worker.
  bool is_peer(size_t server) const { return is_replicated() && server != home; }
  // Which part of a key set the server holds.
  size_t part_of(size_t server) const { return is_replicated() ? 0 : server; }

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
  // Replicated: pushes go to all servers, values come from the one beside this worker.
  Placement placement = Placement::kSharded;
  size_t home = 0;
  // False: nobody looks at pulled values, and updates are known to be finite.
  bool moves_values = true;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_CLIENT_OPTIONS_H_

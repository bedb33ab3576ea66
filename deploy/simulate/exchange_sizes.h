// How many bytes an exchange has on the network.
#ifndef TESSERA_DEPLOY_SIMULATE_EXCHANGE_SIZES_H_
#define TESSERA_DEPLOY_SIMULATE_EXCHANGE_SIZES_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "proto/parameter_server.pb.h"
#include "server/shard/forms/site_subnet.h"

namespace tessera {

// Bytes on the network of what passes between a worker and one server. Estimates, as
// common/rpc/transport.h makes them; payloads are exact.
struct ExchangeSizes {
  int64_t push_payload_bytes = 0;
  int64_t push_wire_bytes = 0;
  int64_t pull_request_wire_bytes = 0;
  int64_t pull_payload_bytes = 0;
  int64_t pull_wire_bytes = 0;
};
// The bytes of all that the server owns, each way.
ExchangeSizes SizesOf(const ShardSlices& slices, MemberId member, absl::string_view job_digest);

// Who asks, with numbers as large as they grow in a job.
v1::Caller CallerOf(MemberId member, absl::string_view job_digest);
// Bytes on the wire of a push of `keys` (all entries, where these have neither a subnet, a core nor layers), of
// the requests of values, and of an answer. The answer's payload is a subnet's where `site` is not nullptr: that
// begins in a message after the header's.
int64_t PushWireBytes(const v1::Caller& caller, const KeySet& keys, int64_t payload_bytes);
int64_t PullWireBytes(const v1::Caller& caller, const KeySet& keys);
int64_t FetchWireBytes(const v1::Caller& caller, const KeySet& keys);
int64_t AnswerWireBytes(const SiteSubnet* site, int64_t payload_bytes);
// Bytes on the wire of a batch that a worker sends to another one, and of the answer.
int64_t ActivationWireBytes(const v1::Caller& caller, int64_t label_bytes,
                            int64_t activation_bytes);
int64_t GradientWireBytes(int64_t gradient_bytes);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_EXCHANGE_SIZES_H_

// What an answer to a pull or a fetch says and sends, whatever was asked for.
#ifndef TESSERA_SERVER_RPC_PULL_ANSWER_H_
#define TESSERA_SERVER_RPC_PULL_ANSWER_H_

#include <cstdint>
#include <memory>

#include "common/codec/codec.h"
#include "common/keyset/named_keys.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/answer_payload.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/shard.h"
#include "server/shard/shard_traits.h"

namespace tessera {

struct PullAnswer {
  // Bytes that are not taken off the payload.
  int64_t left() const { return payload == nullptr ? 0 : payload->left(); }

  v1::ChunkHeader header;  // without payload_bytes and generation
  // Held until the answer is sent, and may be revoked.
  std::shared_ptr<const Snapshot> snapshot;
  std::unique_ptr<AnswerPayload> payload;  // nullptr: none
};

// `read`'s entries in `codec`, where they are those that `asked` names: of others the header says which they are, and
// of none at all why.
PullAnswer AnswerOf(ReadResult read, const NamedKeys& asked, const Codec& codec,
                    const ShardTraits& traits);
// All that a replica holds, and of which pushes it is.
PullAnswer AnswerOf(ReplicaCopy copy, const ShardTraits& traits);
// A core's keys.
PullAnswer AnswerOf(const Core& core, const ShardTraits& traits);

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_PULL_ANSWER_H_

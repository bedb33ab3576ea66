// A push on its way from the transport to the shard.
#ifndef TESSERA_SERVER_SHARD_RECEIVED_PUSH_H_
#define TESSERA_SERVER_SHARD_RECEIVED_PUSH_H_

#include <cstdint>

#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/codec/payload.h"
#include "common/keyset/named_keys.h"

namespace tessera {

// Rows that one push may say it was computed from: far more than any exchange has, and so few that what wraps around
// is none of their sums.
constexpr uint64_t kPushExamplesMax = uint64_t{1} << 40;

// A complete push as the transport received it: header facts and bytes, not yet trusted.
struct ReceivedPush {
  MemberId member;
  Generation generation;
  Exchange exchange;
  Version base;
  int kind = 0;  // v1::PayloadKind
  uint64_t layout_hash = 0;
  uint64_t examples = 0;
  // Which entries the payload has.
  NamedKeys keys;
  // Where the keys are of layers: the payload is the sum of so many updates.
  uint64_t summed = 1;
  // Where the keys are a subnet's: the sender's next exchange is of all entries.
  bool whole_next = false;
  // How the payload is written: f32, or the job's. One of a selective codec has passed its check.
  Codec codec;
  // The sender pulls from another replica: `base` says nothing.
  bool from_peer = false;
  Payload payload;
  // The first entry of the payload that is infinite or not a number, found while the bytes arrived; -1:
  // none, or for the shard to find, in a coded payload of entries that are no run.
  int64_t bad_entry = -1;
  // The place that Shard::Reserve has given it, which Accept gives back where it stages the push.
  int64_t reserved_bytes = 0;

  // A second one of this push, without its place; both refer to one copy of the payload's bytes.
  ReceivedPush Share() const {
    return {member, generation, exchange,   base,  kind,      layout_hash,     examples,
            keys,   summed,     whole_next, codec, from_peer, payload.Share(), bad_entry};
  }
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_RECEIVED_PUSH_H_

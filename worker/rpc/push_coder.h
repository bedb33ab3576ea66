// How a worker's updates become payloads, push by push, and what its codec has held back.
#ifndef TESSERA_WORKER_RPC_PUSH_CODER_H_
#define TESSERA_WORKER_RPC_PUSH_CODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/codec/codec.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "kernels/backend.h"
#include "worker/exchange/device_sides.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/update_payload.h"

namespace tessera {

struct CodingOptions {
  CodecChoice codecs;
  // What is exchanged; used where the codec looks at whole parameters or holds something back.
  ModelShape shape;
  // The job's, and whose random numbers.
  uint64_t seed = 0;
  Rank rank;
  // Replicated: the one part is asked for once for every server, and all get the same bytes.
  Placement placement = Placement::kSharded;
  // Where arrays are a device's, which outlives what is made with these.
  DeviceSides sides = {};
  Backend* device = nullptr;
  // Set: pushes are of these layers or of none, and nothing else is held back.
  std::optional<ParameterRange> layers = std::nullopt;
};

// One thread, but that payloads of different servers may be read on different ones.
class PushCoder {
 public:
  virtual ~PushCoder() = default;

  // A push begins, whose payloads are asked for next. All are borrowed until the next one. An error is
  // the device's.
  virtual absl::Status Begin(const OutgoingPush& push, const KeySet& keys,
                             const ConstParameterArrays& update) = 0;
  // The codec of that push: f32 where it is flushed.
  virtual const Codec& codec() const = 0;
  // The part of keys.slices[server]. `runs` must outlive it.
  virtual std::unique_ptr<UpdatePayload> Make(size_t server, UpdateRuns* runs) = 0;

  // Between pushes: what is held back, by parameter; empty: nothing is. Whoever writes it says so with
  // AdoptHeldBack.
  virtual absl::StatusOr<std::vector<absl::Span<float>>> held_back() = 0;
  virtual absl::Status AdoptHeldBack() { return absl::OkStatus(); }
  // Between pushes: what the codec has learned of updates, which may be written; empty: nothing.
  virtual absl::Span<float> learned() { return {}; }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_PUSH_CODER_H_

// What a simulated worker pushes, as servers receive it.
//
// No byte is copied where updates are f32: the push on its way is the learner's update itself. Other codecs than f32 do
// write bytes, with the very objects that worker/rpc uses. Where nobody looks at values, the payload of a selective
// codec is empty, and its size on the network is the codec's forecast.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_UPDATES_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_UPDATES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "deploy/simulate/client_options.h"
#include "server/shard/received_push.h"
#include "server/shard/shard_traits.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/update_coder.h"

namespace tessera {

// Update and keys of a push are borrowed until the next one.
class SimulatedUpdates {
 public:
  // `shards`: of all servers, and like `options` they outlive it. `moves_cores`: exchanges move a core.
  SimulatedUpdates(const SimulatedClientOptions* options, std::vector<const ShardTraits*> shards,
                   bool moves_cores);

  // A push begins, whose payloads are made next.
  void Begin(const OutgoingPush& push, const KeySet& keys, const ConstParameterArrays& update);
  // Makes the payload of `server`, and returns its size.
  int64_t Encode(size_t server);
  // Puts the core's keys in front of that payload, and returns their size.
  int64_t AddKeys(size_t server);
  // The push as `server` receives it, computed from the values of version `base`.
  ReceivedPush Make(size_t server, Version base);

 private:
  struct Part {
    Payload payload;        // where it is coded
    bool has_keys = false;  // the core's, before it
  };

  bool is_coded() const {
    return options_.codecs.push != Codec() || options_.codecs.holds_back() || keys_->is_sparse();
  }
  // The entries that are pushed to `server`.
  const ShardSlices& Slices(size_t server) const;
  void AddSparse(size_t server, ReceivedPush* push) const;

  const SimulatedClientOptions& options_;
  const std::vector<const ShardTraits*> shards_;
  KeySet dense_;
  std::optional<UpdateCoder> coder_;  // where pushes are coded
  std::vector<Part> parts_;           // by server
  // The push under way.
  OutgoingPush push_;
  const KeySet* keys_ = nullptr;
  const ConstParameterArrays* update_ = nullptr;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_UPDATES_H_

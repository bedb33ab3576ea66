// What a server's answer brings, in the arrays of a simulated worker's learner.
//
// Values are copied once, when the server takes the snapshot; that they are on their way for a while is a matter of
// time only. Other codecs than f32 write bytes and read them, with the very objects that server/rpc and worker/rpc
// use.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_VALUES_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/codec/coded_keys.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "deploy/simulate/client_options.h"
#include "server/shard/shard.h"
#include "worker/exchange/exchange_answers.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/replica_runs.h"

namespace tessera {

// Keys and arrays of an exchange are borrowed until the next one.
class SimulatedValues {
 public:
  // `shards`: what the servers own. Both outlive it.
  SimulatedValues(const SimulatedClientOptions* options, std::vector<const ShardSlices*> shards)
      : options_(*options), shards_(std::move(shards)) {}

  // The values of `keys` are asked for, to be written to `values`: f32 where it is `outside` of exchanges.
  void Begin(const KeySet& keys, const ParameterArrays& values, bool outside) {
    keys_ = &keys;
    values_ = &values;
    outside_ = outside;
  }
  // Writes what `server` answers. Returns the bytes of its payload, and what it says in `answer`.
  int64_t Take(size_t server, const ReadResult& result, ServerAnswer* answer) const;

 private:
  bool is_coded() const { return !outside_ && options_.codecs.pull != Codec(); }
  const ShardSlices& Slices(size_t server) const;
  float* PlaceOf(const Slice& slice) const {
    return (*values_)[slice.parameter].data() + slice.row_begin * slice.columns;
  }
  void WriteSubnet(size_t server, const ReadResult& result) const;
  void WriteSparse(size_t server, const CodedKeys& keys, const ReadResult& result) const;
  void WriteCoded(size_t server, const CodedKeys& keys, ValueRuns* runs,
                  const ReadResult& result) const;
  // Copies the values of a shard's snapshot, from entry `begin` on.
  void CopyValues(const ShardSlices& slices, const std::shared_ptr<const Snapshot>& snapshot,
                  int64_t begin) const;

  const SimulatedClientOptions& options_;
  const std::vector<const ShardSlices*> shards_;
  const KeySet* keys_ = nullptr;
  const ParameterArrays* values_ = nullptr;
  bool outside_ = false;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_VALUES_H_

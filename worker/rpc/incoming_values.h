// Where the values of one exchange go: into the worker's arrays, or by the host's memory into a device's.
//
//   values that are runs of the arrays    written where they belong, as their bytes arrive
//   entries of a core and an explorer     kept as they come, and scattered once all have come
//   arrays of a device                    received as the codec wrote them, and sent on answer by answer
#ifndef TESSERA_WORKER_RPC_INCOMING_VALUES_H_
#define TESSERA_WORKER_RPC_INCOMING_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/coded_keys.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/device_values.h"
#include "worker/rpc/push_coder.h"
#include "worker/rpc/replica_runs.h"
#include "worker/rpc/value_watch.h"
#include "worker/rpc/value_writer.h"

namespace tessera {

// One thread, but that a ValueWriter may be used on another one. Keys and arrays of an exchange are borrowed from Begin
// to End.
class IncomingValues {
 public:
  // `device`: nullptr where the values of exchanges are the host's. `slices`: what the job's servers own.
  IncomingValues(CodingOptions coding, std::vector<ShardSlices> slices,
                 std::unique_ptr<DeviceValues> device);

  // An exchange begins: its answers bring the values of `keys`, into `values`. In `outside` of exchanges they come as
  // f32 and are the host's. An error is the device's, and nothing has begun.
  absl::Status Begin(const KeySet& keys, const ParameterArrays& values, bool outside);
  // Makes room for the answer of `server`, which has the part `part` of the keys.
  absl::Status Await(size_t server, size_t part);
  // In place of Begin and Await: the answer of `server` has these slices of `values`, as f32.
  void AwaitSlices(size_t server, const ShardSlices& slices, const ParameterArrays& values);
  // Whom values are told to as they come, where they come as they lie; nullptr: nobody. After Begin.
  void Watch(ValueSink* sink);

  // The place of the answer of `server`, from its beginning.
  ValueWriter Writer(size_t server);
  // The core that the answer of `server` is of; nullptr: the keys name none.
  const Core* core(size_t server) const;
  bool is_watched() const { return watch_.is_on(); }
  // An answer begins anew, with values that may be others.
  void Restart() { watch_.Restart(); }
  // Tells how many bytes of each part's answer are in their place.
  void Tell(const std::vector<int64_t>& written) { watch_.Tell(written); }
  size_t parts() const { return keys_ == nullptr ? 0 : keys_->slices.size(); }
  // The answer of `server` is complete. An error is the device's.
  absl::Status OnAnswer(size_t server);
  // The exchange is over. `has_values`: all answers have come, and with values.
  void End(bool has_values);

 private:
  struct Place {
    size_t part = 0;
    ValueRuns runs;
    std::optional<CodedKeys> keys;  // how values come; nullopt: as f32
    std::vector<float> entries;     // a core's and an explorer's, as they come
    char* received = nullptr;       // where values are a device's
  };

  Place& PlaceOf(size_t server);
  bool is_sparse() const { return keys_ != nullptr && keys_->is_sparse(); }
  void Scatter();

  const CodingOptions coding_;
  const std::vector<ShardSlices> slices_;
  const std::unique_ptr<DeviceValues> device_;
  std::vector<Place> places_;  // by server
  ValueWatch watch_;

  // The exchange under way; nullptr: none is, or it is of slices.
  const KeySet* keys_ = nullptr;
  const ParameterArrays* values_ = nullptr;
  bool is_outside_ = false;
  bool is_devices_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_INCOMING_VALUES_H_

// The payloads of one push, server by server, and what is said of the core that they begin with.
#ifndef TESSERA_WORKER_RPC_PUSHED_UPDATE_H_
#define TESSERA_WORKER_RPC_PUSHED_UPDATE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/codec.h"
#include "common/keyset/key_set.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/push_coder.h"
#include "worker/rpc/replica_runs.h"
#include "worker/rpc/update_payload.h"

namespace tessera {

// One thread, but that payloads of different servers may be read on different ones. Keys and update of a push are
// borrowed from Begin to End.
class PushedUpdate {
 public:
  explicit PushedUpdate(std::unique_ptr<PushCoder> coder) : coder_(std::move(coder)) {}

  // A push begins, whose payloads are made next. An error is the device's.
  absl::Status Begin(const OutgoingPush& push, const KeySet& keys,
                     const ConstParameterArrays& update);
  // Makes the payload of `server`, which holds the part `part` of the keys. All are made before the first is read.
  // `servers`: how many there are.
  void Make(size_t server, size_t part, size_t servers);
  // The payload for a server, at its beginning. It lives until the next push.
  UpdatePayload* Payload(size_t server);
  // Puts the core's keys in front of the payload of `server`, which did not know them. False: they came with it, or the
  // push is of no core.
  bool AddKeys(size_t server);
  // Says in `header` which core the payload of `server` is of, if it is of one.
  void NameCore(size_t server, v1::PushHeader* header) const;
  void End() { keys_ = nullptr; }

  PushCoder& coder() { return *coder_; }
  const Codec& codec() const { return coder_->codec(); }

 private:
  struct Part {
    UpdateRuns runs;
    std::unique_ptr<UpdatePayload> payload;
    bool has_keys = false;  // the core's, before the entries
  };

  const std::unique_ptr<PushCoder> coder_;
  std::vector<Part> parts_;  // by server
  // The keys of the push under way, where it is of a core and an explorer; nullptr where it is of others.
  const KeySet* keys_ = nullptr;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_PUSHED_UPDATE_H_

// A worker's parameter client on the simulated network.
//
// As worker/rpc does, an exchange speaks to all servers at once, and the pull is asked for together
// with the push, so that it takes one round trip.
//
// No byte is copied that a worker's own memory does not ask for. A push on its way is the learner's
// update itself: its process is parked until the values have come, and a server answers with those
// only when it has folded the push. Values are copied once, into the learner, when the server takes
// the snapshot; that they are on their way for a while is a matter of time only.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_server.h"
#include "deploy/simulate/simulated_world.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// Bytes on the network of what passes between a worker and one server.
struct ExchangeSizes {
  int64_t payload_bytes = 0;
  int64_t push_wire_bytes = 0;
  int64_t pull_request_wire_bytes = 0;
  int64_t pull_wire_bytes = 0;
};
// An estimate, as common/rpc/transport.h makes it.
ExchangeSizes SizesOf(const ShardSlices& slices, MemberId member, absl::string_view job_digest);

// Lives as long as the simulation: messages refer to it.
class SimulatedClient final : public ParameterClient {
 public:
  struct Options {
    int machine = 0;
    MemberId member;
    int kind = 0;  // v1::PayloadKind
    std::string job_digest;
    // False: nobody looks at pulled values, and updates are known to be finite.
    bool moves_values = true;
  };

  // All outlive the client.
  SimulatedClient(Options options, SimulatedWorld* world, SimulatedProcess* process,
                  const std::vector<std::unique_ptr<SimulatedServer>>* servers);

  // All keys are dense.
  absl::StatusOr<ExchangeResult> Pull(Exchange after, const KeySet& keys,
                                      const ParameterArrays& values) override;
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override;
  absl::StatusOr<ExchangeResult> Read(Exchange after, RestWord word,
                                      const ParameterArrays& values) override;
  Traffic traffic() const override { return traffic_; }

  // --- the servers' answers, called when they are given ---
  void Acknowledged(ShardId server, uint64_t call, const absl::Status& accepted);
  void Served(ShardId server, uint64_t call, absl::StatusOr<ReadResult> result);

 private:
  using Kind = SimulatedServer::Request::Kind;
  struct Server {
    SimulatedServer* server = nullptr;
    ExchangeSizes sizes;
    Version base;
    Version pulled;
  };

  absl::StatusOr<ExchangeResult> Do(Kind kind, const OutgoingPush& push,
                                    const ConstParameterArrays* update,
                                    const ParameterArrays& values);
  // A request is at its server.
  void Arrive(uint32_t server, uint64_t call);
  ReceivedPush MakePush(const Server& server) const;
  void CopyValues(const ShardSlices& slices, const Snapshot& snapshot) const;
  // An answer is here.
  void OnAcknowledged(uint64_t call);
  void OnValues(uint32_t server, uint64_t call);
  void Finish();

  const Options options_;
  SimulatedWorld& world_;
  SimulatedProcess& process_;
  std::vector<Server> servers_;
  Traffic traffic_;

  // The exchange under way.
  uint64_t call_ = 0;
  uint64_t ticket_ = 0;
  Kind kind_ = Kind::kPull;
  OutgoingPush push_;
  const ConstParameterArrays* update_ = nullptr;
  const ParameterArrays* values_ = nullptr;
  size_t pushes_left_ = 0;
  size_t pulls_left_ = 0;
  uint64_t job_examples_ = 0;
  SimNanos pushed_at_ = 0;
  SimNanos first_value_at_ = 0;
  absl::Status failed_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_

// A worker's parameter client on the simulated network.
//
// As worker/rpc does, an exchange speaks to all servers at once, and the pull is asked for together
// with the push, so that it takes one round trip.
//
// The learner's update and arrays are those that a push and its answer refer to (simulated_updates.h,
// simulated_values.h): its process is parked until the values have come, and a server answers with those only when it
// has folded the push.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/keyset/key_set.h"
#include "deploy/simulate/client_options.h"
#include "deploy/simulate/exchange_sizes.h"
#include "deploy/simulate/simulated_cores.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_server.h"
#include "deploy/simulate/simulated_updates.h"
#include "deploy/simulate/simulated_values.h"
#include "deploy/simulate/simulated_world.h"
#include "worker/exchange/exchange_answers.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// Lives as long as the simulation: messages refer to it.
class SimulatedClient final : public ParameterClient {
 public:
  // All outlive the client.
  SimulatedClient(SimulatedClientOptions options, SimulatedWorld* world, SimulatedProcess* process,
                  const std::vector<std::unique_ptr<SimulatedServer>>* servers);

  absl::StatusOr<ExchangeResult> Pull(Exchange after, const KeySet& keys,
                                      const ParameterArrays& values) override;
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override;
  absl::Status BeginPushPull(const OutgoingPush& push, const KeySet& update_keys,
                             const ConstParameterArrays& update, const KeySet& value_keys,
                             const ParameterArrays& values) override;
  absl::StatusOr<ExchangeResult> EndPushPull() override;
  void DropPushPull() override { ++call_; }  // What is still on its way is of no use.
  absl::StatusOr<ExchangeResult> Read(Exchange after, IdleNotice word,
                                      const ParameterArrays& values) override;
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override;
  void AskCores(uint64_t number) override { cores_.Ask(number); }
  absl::StatusOr<Cores> TakeCores() override { return cores_.Take(); }
  Traffic traffic() const override {
    Traffic sum = traffic_;
    return sum += cores_.traffic();
  }

  // --- the servers' answers, called when they are given ---
  void Acknowledged(ShardId server, uint64_t call, const absl::Status& accepted);
  // The push names a core that the server does not know, and nothing was taken: the request comes again, with the
  // keys. The first one counts as sent to its end, where a real server answers after the first chunk.
  void NeedKeys(ShardId server, uint64_t call);
  // Returns the bytes of the payload.
  int64_t Served(ShardId server, uint64_t call, absl::StatusOr<ReadResult> result);

 private:
  using Kind = SimulatedServer::Request::Kind;
  struct Server {
    SimulatedServer* server = nullptr;
    ExchangeSizes dense;
    ExchangeSizes sizes;  // of the exchange under way
    ServerAnswer answer;  // on its way
    Version base;
  };

  // Sends the requests; End waits for the answers. `update_keys` are a push's, nullptr of others.
  void Begin(Kind kind, const OutgoingPush& push, const KeySet* update_keys,
             const KeySet& value_keys, const ParameterArrays& values);
  absl::StatusOr<ExchangeResult> End();
  bool is_under_way() const { return failed_.ok() && (pushes_left_ > 0 || pulls_left_ > 0); }
  ExchangeSizes SizesAt(size_t server) const;
  void SetPushBytes(size_t server, int64_t payload_bytes);
  // A server refuses; the first one's reason counts.
  void CountShared(const Server& server, int64_t payload_bytes);
  void Fail(ShardId server, const absl::Status& why);
  // A request is at its server.
  void Arrive(uint32_t server, uint64_t call);
  void SendWithKeys(uint32_t server, uint64_t call);
  // An answer is here.
  void OnAcknowledged(uint64_t call);
  void OnValues(uint32_t server, uint64_t call);

  const SimulatedClientOptions options_;
  SimulatedWorld& world_;
  SimulatedProcess& process_;
  std::vector<Server> servers_;
  SimulatedUpdates updates_;
  SimulatedValues values_;
  SimulatedCores cores_;
  Traffic traffic_;

  // The exchange under way.
  uint64_t call_ = 0;
  uint64_t ticket_ = 0;
  Kind kind_ = Kind::kPull;
  OutgoingPush push_;
  const KeySet* update_keys_ = nullptr;
  const KeySet* value_keys_ = nullptr;
  size_t pushes_left_ = 0;
  size_t pulls_left_ = 0;
  ExchangeAnswers answers_;
  absl::Status failed_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_

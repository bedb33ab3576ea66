// The parameter client over gRPC: all servers at once, no copy but the one into the replica.
//
// An exchange is one Push and one Pull to every server, all started together; of a subnet, one
// FetchSubnet. A server parks the pull until it may answer, which is after it has accepted this
// worker's push. What fails is tried
// again (worker/rpc/retry.h) under the same exchange number, which makes a repeat harmless.
//
// Where placement is replicated an exchange is a Push to every server and a Pull from the one beside this
// worker. Servers come and go: a push to one that has gone is given up, and one that has come is pushed
// to from the next exchange on.
#ifndef TESSERA_WORKER_RPC_PARAMETER_CLIENT_GRPC_H_
#define TESSERA_WORKER_RPC_PARAMETER_CLIENT_GRPC_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/exchange_answers.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/call_board.h"
#include "worker/rpc/core_calls.h"
#include "worker/rpc/exchange_requests.h"
#include "worker/rpc/incoming_values.h"
#include "worker/rpc/push_coder.h"
#include "worker/rpc/pushed_update.h"
#include "worker/rpc/retry.h"
#include "worker/rpc/server_call.h"
#include "worker/rpc/server_links.h"

namespace tessera {

// One thread, the train loop's, but for Cancel. Owns its channels; borrows the arrays during a call
// only: when a call returns, with or without error, nothing refers to them any more.
class ParameterClientGrpc final : public ParameterClient {
 public:
  struct Options {
    // host:port by shard, and what each of them owns. Replicated: what all of them hold, alone; the
    // servers are those of SetServers, which comes before the first call.
    std::vector<std::string> servers;
    std::vector<ShardSlices> slices;
    Placement placement = Placement::kSharded;
    // Replicated: the server beside this worker.
    size_t home = 0;
    uint64_t layout_hash = 0;
    MemberId member;
    Generation generation;
    std::string job_digest;
    v1::PayloadKind kind = v1::GRADIENT;
    // How values are written, what `slices` are of, whose random numbers.
    CodingOptions coding;
    // Another server may take over a shard (SetServers); requests say which shard they are for.
    bool has_standbys = false;
    // A server does not answer as it should: SetServers may be due. Any thread.
    std::function<void()> on_trouble;
    // How long a server that cannot be reached, or that refuses for the moment, is tried again.
    absl::Duration retry_time = absl::Seconds(10);
    // 1, or 2: then pulls have a connection of their own.
    int channels_per_server = 1;
    // Payloads go by memory to and from servers of this machine and user, where both sides can.
    bool shares_memory = false;
  };

  // Connects when first used.
  //   kInvalidArgument    servers and slices do not match
  //   kResourceExhausted  a device has no memory for what is held back
  static absl::StatusOr<std::unique_ptr<ParameterClientGrpc>> Create(Options options);

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
  void DropPushPull() override;
  absl::StatusOr<ExchangeResult> Read(Exchange after, IdleNotice word,
                                      const ParameterArrays& values) override;
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override;
  // The first half of PushPull alone.
  absl::StatusOr<ExchangeResult> Push(Exchange exchange, uint64_t examples, const KeySet& keys,
                                      const ConstParameterArrays& update);
  void AskCores(uint64_t number) override { cores_.Ask(number); }
  absl::StatusOr<Cores> TakeCores() override { return cores_.Take(&traffic_); }
  // What Options.slices say.
  const KeySet& dense_keys() const { return dense_keys_; }
  Traffic traffic() const override { return traffic_; }
  absl::StatusOr<std::vector<absl::Span<float>>> held_back() override {
    return update_.coder().held_back();
  }
  absl::Status AdoptHeldBack() override { return update_.coder().AdoptHeldBack(); }
  absl::Span<float> learned() override { return update_.coder().learned(); }

  // Replicated: the servers to push to. With standbys: who leads which shard. An older list than the last
  // one changes nothing. Any thread.
  void SetServers(const v1::ServerList& list);

  // The coordinator is away for longer than a lease: others may have gone on without this worker. No call
  // to a server is begun until it is back, and none is given up. Any thread.
  void SetAway(bool away);

  // Whether payloads of the next call to this server go by memory. The train loop's thread.
  bool shares_memory(size_t server) { return links_.memory(server) != nullptr; }
  // Bytes of payloads that went by memory, in either direction.
  int64_t shared_bytes() const { return shared_bytes_; }
  // Calls that have gone on several connections.
  int64_t striped_calls() const { return striped_calls_; }

  // Ends the call under way and all later ones with kCancelled. Any thread; not from a signal
  // handler.
  void Cancel();

 private:
  // One half of an exchange with one server, with its retries.
  struct Task {
    size_t server;
    bool is_push;
    Retry retry;
    std::unique_ptr<PushToServer> push = nullptr;
    std::unique_ptr<PullFromServer> pull = nullptr;
    ServerCall* call = nullptr;  // the attempt under way
    bool is_local = false;       // the server of the attempt shares memory with this process
    bool done = false;
    bool given_up = false;  // its server has gone
  };
  struct Versions {
    Version base;  // of the next push
    Version pulled;
  };

  ParameterClientGrpc(Options options, std::unique_ptr<PushCoder> coder,
                      std::unique_ptr<DeviceValues> device_values);

  v1::Caller OwnCaller() const;
  CoreCalls::Options CoreOptions();
  static KeySet AllOf(const std::vector<ShardSlices>& slices);
  ServerLinks::Options LinkOptions() const;
  // Servers may have changed since the last exchange.
  void TakeUpServers();
  // Called in mid-exchange. Gives up pushes to servers that have gone, and repeats what a shard that has moved has not
  // answered for good.
  void FollowServers();
  void RepeatAt(size_t shard);
  absl::Status PreparePush(const OutgoingPush& push, const KeySet& keys,
                           const ConstParameterArrays& update);
  void AddTask(size_t server, bool is_push);
  void AddPushes(const KeySet& keys);
  absl::Status AddPulls(const KeySet& keys, const ParameterArrays& values);
  // Runs until all tasks are done; with a failure, only until none of them is under way. Times count from `begin`.
  absl::StatusOr<ExchangeResult> RunTasks(absl::Time begin, absl::Status failed = absl::OkStatus());
  absl::StatusOr<ExchangeResult> EndExchange(absl::Time begin);
  absl::Time StartDue(absl::Time now);
  // Reads what has come by packets.
  void TakePackets();
  std::vector<int> PacketSockets() const;
  void StartPush(Task* task);
  void StartPull(Task* task);
  absl::Status Collect(Task* task, absl::Time now);
  void Count(const Task& task, const ServerCall& call);
  // Whoever sends values on to a device hears which are there.
  void TellValues();

  const Options options_;
  const KeySet dense_keys_;
  ServerLinks links_;
  PushedUpdate update_;
  IncomingValues values_;
  ExchangeRequests requests_;
  CoreCalls cores_;
  std::vector<Versions> versions_;  // by server
  std::vector<Task> tasks_;
  std::vector<int64_t> written_;  // by part: bytes of values that are in their place
  ExchangeAnswers answers_;
  Traffic traffic_;
  int64_t shared_bytes_ = 0;
  int64_t striped_calls_ = 0;
  CallBoard board_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> away_{false};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_PARAMETER_CLIENT_GRPC_H_

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
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/wakeup.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/core_calls.h"
#include "worker/rpc/device_values.h"
#include "worker/rpc/exchange_requests.h"
#include "worker/rpc/push_coder.h"
#include "worker/rpc/replica_runs.h"
#include "worker/rpc/retry.h"
#include "worker/rpc/server_call.h"
#include "worker/rpc/value_watch.h"

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
  absl::StatusOr<ExchangeResult> Read(Exchange after, RestWord word,
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
    return coder_->held_back();
  }
  absl::Status AdoptHeldBack() override { return coder_->AdoptHeldBack(); }
  absl::Span<float> learned() override { return coder_->learned(); }

  // Replicated: the servers to push to. With standbys: who leads which shard. An older list than the last
  // one changes nothing. Any thread.
  void SetServers(const v1::ServerList& list);

  // The coordinator is away for longer than a lease: others may have gone on without this worker. No call
  // to a server is begun until it is back, and none is given up. Any thread.
  void SetAway(bool away);

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
    bool done = false;
    bool given_up = false;  // its server has gone
  };
  struct Server {
    std::string address;
    std::vector<std::unique_ptr<grpc::GenericStub>>
        stubs;  // pushes go to the first, pulls to the last
    UpdateRuns update;
    std::unique_ptr<UpdatePayload> payload;
    ValueRuns values;
    std::optional<CodedKeys> value_keys;  // how values come; nullopt: as f32
    std::vector<float> entries;           // a core's and an explorer's values, as they come
    char* received = nullptr;             // where values are the device's
    bool sends_keys = false;              // the core's, before the push's entries
    Version base;
    Version pulled;
    uint64_t life = 0;  // replicated; 0: none has this rank
  };

  ParameterClientGrpc(Options options, std::unique_ptr<PushCoder> coder,
                      std::unique_ptr<DeviceValues> device_values);

  bool replicated() const { return options_.placement == Placement::kReplicated; }
  bool is_peer(size_t server) const { return replicated() && server != options_.home; }
  // Pulls are from this one, and where sharded from the others, too.
  bool pulls_from(size_t server) const { return !is_peer(server); }
  // Replicated: takes up the list of SetServers; in mid-exchange only what has gone.
  void FollowServers(bool between_exchanges);
  // With standbys: goes where shards are led now, and repeats there what is not answered.
  void FollowLeaders();
  void NameShard(size_t server, v1::Caller* caller) const {
    if (options_.has_standbys) caller->set_shard(static_cast<uint32_t>(server));
    if (replicated()) caller->set_life(servers_[server].life);
  }
  void Connect(Server* server);
  v1::Caller OwnCaller() const;
  absl::Status PreparePush(const OutgoingPush& push, const KeySet& keys,
                           const ConstParameterArrays& update);
  void AddTask(size_t server, bool is_push);
  void AddPushes(const KeySet& keys);
  absl::Status AddPulls(const KeySet& keys, const ParameterArrays& values);
  // Where values are the device's: each answer comes to the host, and goes on from there while others
  // are still coming.
  absl::Status AddDevicePulls(const KeySet& keys, const ParameterArrays& values);
  absl::Status WriteDeviceValues(size_t server);
  // Whoever sends values on to a device hears which are there.
  void WatchValues(ValueSink* sink, const KeySet& keys);
  void TellValues();
  void AddSparsePull(size_t server, const SparseKeys& keys);
  // Puts the values that have come where they belong.
  void ScatterValues();
  // The push is sent again, with the keys of its core.
  absl::Status AddKeys(size_t server);
  void NameCore(size_t server);
  CoreCalls::Options CoreOptions();
  void AddPull(size_t server, const ShardSlices& slices, const ParameterArrays& values);
  std::unique_ptr<PullFromServer> MakePull(Server* server);
  // Until all are done; with a failure, only until nothing of them is left. Times count from `begin`.
  absl::StatusOr<ExchangeResult> RunTasks(absl::Time begin, absl::Status failed = absl::OkStatus());
  absl::StatusOr<ExchangeResult> EndExchange(absl::Time begin);
  absl::Time StartDue(absl::Time now);
  absl::Status Collect(Task* task, absl::Time now);
  void RememberVersions();

  const Options options_;
  const KeySet dense_keys_;
  const std::unique_ptr<PushCoder> coder_;
  const std::unique_ptr<DeviceValues> device_values_;  // nullptr: values are the host's
  std::vector<Server> servers_;
  std::vector<Task> tasks_;
  ExchangeRequests requests_;
  Wakeup board_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> away_{false};
  std::atomic<bool> servers_changed_{false};
  absl::Mutex mutex_;
  v1::ServerList wanted_servers_ ABSL_GUARDED_BY(mutex_);
  Traffic traffic_;
  CoreCalls cores_;
  // Of the exchange under way.
  // Of a core's and an explorer's entries; nullptr: of others.
  const KeySet* sparse_push_ = nullptr;
  const KeySet* sparse_pull_ = nullptr;
  const ParameterArrays* sparse_values_ = nullptr;
  const KeySet* device_pull_ = nullptr;  // of values that are the device's
  const ParameterArrays* pulled_arrays_ = nullptr;
  ValueWatch watch_;
  std::vector<int64_t> written_;  // what it is told
  ExchangeResult answer_;         // without times
  absl::Time pushed_time_;
  absl::Time first_value_time_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_PARAMETER_CLIENT_GRPC_H_

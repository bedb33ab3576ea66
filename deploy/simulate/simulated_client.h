// A worker's parameter client on the simulated network.
//
// As worker/rpc does, an exchange speaks to all servers at once, and the pull is asked for together
// with the push, so that it takes one round trip.
//
// No byte is copied that a worker's own memory does not ask for. A push on its way is the learner's
// update itself: its process is parked until the values have come, and a server answers with those
// only when it has folded the push. Values are copied once, into the learner, when the server takes
// the snapshot; that they are on their way for a while is a matter of time only. So it is with
// subnets, whose values a server gathers for the site that asks, if it asks for the right cut. Of layers
// pushes and values are parts of all.
//
// Other codecs than f32 do write bytes, with the very objects that worker/rpc and server/rpc use. Where
// nobody looks at values, the payload of a selective codec is empty, and its size on the network is the codec's
// forecast.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/codec/codec.h"
#include "common/keyset/key_set.h"
#include "common/layout/layer_cut.h"
#include "common/layout/shard_map.h"
#include "deploy/simulate/exchange_sizes.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_server.h"
#include "deploy/simulate/simulated_world.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/answer_payload.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/update_coder.h"

namespace tessera {

// Lives as long as the simulation: messages refer to it.
class SimulatedClient final : public ParameterClient {
 public:
  struct Options {
    int machine = 0;
    MemberId member;
    int kind = 0;  // v1::PayloadKind
    CodecChoice codecs;
    // The job's, and whose random numbers.
    uint64_t seed = 0;
    Rank rank;
    // If set, its pushes are of these layers, or of none.
    std::optional<ParameterRange> layers;
    std::string job_digest;
    // False: nobody looks at pulled values, and updates are known to be finite.
    bool moves_values = true;
  };

  // All outlive the client.
  SimulatedClient(Options options, SimulatedWorld* world, SimulatedProcess* process,
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
  absl::StatusOr<ExchangeResult> Read(Exchange after, RestWord word,
                                      const ParameterArrays& values) override;
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override;
  void AskCores(uint64_t number) override;
  absl::StatusOr<Cores> TakeCores() override;
  Traffic traffic() const override { return traffic_; }

  // --- the servers' answers, called when they are given ---
  void Acknowledged(ShardId server, uint64_t call, const absl::Status& accepted);
  // The push names a core that the server does not know, and nothing was taken: the request comes again, with the
  // keys. The first one counts as sent to its end, where a real server answers after the first chunk.
  void NeedKeys(ShardId server, uint64_t call);
  // These return the bytes of the payload.
  int64_t TakeCore(ShardId server, uint64_t call, absl::StatusOr<std::shared_ptr<const Core>> core);
  int64_t Served(ShardId server, uint64_t call, absl::StatusOr<ReadResult> result);

 private:
  using Kind = SimulatedServer::Request::Kind;
  struct Server {
    SimulatedServer* server = nullptr;
    ExchangeSizes dense;
    ExchangeSizes sizes;      // of the exchange under way
    Payload payload;          // of its push, where that is coded
    bool sends_keys = false;  // of the core that the push is of
    Version base;
    Version pulled;
  };

  // What one exchange moves. Without an update it only pulls.
  struct Transfer {
    const KeySet* update_keys = nullptr;
    const ConstParameterArrays* update = nullptr;
    const KeySet* value_keys = nullptr;
    const ParameterArrays* values = nullptr;
  };

  // The place of a slice in its parameter's array.
  template <typename Float>
  static Float* PlaceOf(const Slice& slice, const absl::Span<Float>& array) {
    return array.data() + slice.row_begin * slice.columns;
  }

  // Sends the requests; End waits for the answers.
  void Begin(Kind kind, const OutgoingPush& push, const Transfer& transfer);
  absl::StatusOr<ExchangeResult> End();
  bool is_under_way() const { return failed_.ok() && (pushes_left_ > 0 || pulls_left_ > 0); }
  ExchangeSizes SizesAt(size_t server) const;
  // A request is at its server.
  void Arrive(uint32_t server, uint64_t call);
  // Which of its entries are pushed.
  const ShardSlices& PushedSlices(size_t server) const;
  ReceivedPush MakePush(size_t server);
  void EncodePush(size_t server);
  bool codes_pushes() const {
    return options_.codecs.push != Codec() || options_.codecs.holds_back();
  }
  bool codes_pulls() const {
    return kind_ != Kind::kReadOutside && options_.codecs.pull != Codec();
  }
  void TakeCoded(size_t server, const ShardSlices& slices, const ReadResult& result);
  void SendWithKeys(uint32_t server, uint64_t call);
  // The entries that the push is of, and those that were read, written into the learner's arrays.
  void EncodeSparse(size_t server, ReceivedPush* push) const;
  void TakeSparse(size_t server, const ReadResult& result);
  bool pushes_sparse() const { return transfer_.update_keys->is_sparse(); }
  void WriteCoded(size_t server, const CodedKeys& keys, ValueRuns* runs,
                  const ReadResult& result) const;
  // Of a shard's snapshot, from entry `begin` on.
  void CopyValues(const ShardSlices& slices, const Snapshot& snapshot, int64_t begin) const;
  void TakeRun(size_t server, const ShardSlices& slices, const ReadResult& result);
  void TakeCut(size_t server, const ReadResult& result);
  // An answer is here.
  void OnAcknowledged(uint64_t call);
  void OnValues(uint32_t server, uint64_t call);
  void Finish();

  Options options_;
  SimulatedWorld& world_;
  SimulatedProcess& process_;
  std::vector<Server> servers_;
  KeySet dense_keys_;
  std::optional<UpdateCoder> coder_;  // where pushes are coded
  Traffic traffic_;

  // The exchange under way.
  uint64_t call_ = 0;
  uint64_t ticket_ = 0;
  Kind kind_ = Kind::kPull;
  OutgoingPush push_;
  Transfer transfer_;
  bool is_whole_ = false;
  std::optional<SubnetPlace> recut_;
  size_t pushes_left_ = 0;
  size_t pulls_left_ = 0;
  uint64_t job_examples_ = 0;
  Generation plan_;
  SimNanos pushed_at_ = 0;
  SimNanos first_value_at_ = 0;
  absl::Status failed_;
  bool needs_all_ = false;
  uint64_t core_count_ = 0;

  // The cores that were asked for.
  uint64_t core_call_ = 0;
  uint64_t core_wanted_ = 0;
  size_t cores_left_ = 0;
  bool waits_for_cores_ = false;
  Cores cores_;
  absl::Status cores_failed_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_CLIENT_H_

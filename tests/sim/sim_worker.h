// A worker's protocol on virtual time: join, pull, compute, push, evaluate, renew, leave, with a
// client's retries. The order of things is worker/train's; the arithmetic is replaced by updates
// that the checker knows.
#ifndef TESSERA_TESTS_SIM_SIM_WORKER_H_
#define TESSERA_TESTS_SIM_SIM_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/codec/coded_keys.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "tests/sim/checker.h"
#include "tests/sim/codec_checker.h"
#include "tests/sim/model_entries.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_folder.h"
#include "tests/sim/faulty_network.h"
#include "tests/sim/sim_server.h"
#include "tests/sim/subnet_entries.h"
#include "worker/exchange/exchange_keys.h"
#include "worker/rejoin.h"
#include "worker/rpc/update_coder.h"

namespace tessera {

class SimWorker {
 public:
  struct Options {
    uint64_t seed = 0;
    uint64_t life = 0;
    std::optional<uint32_t> rank;
    uint64_t rows = 1;
    // Exactly one of the two is not 0.
    uint64_t epochs = 0;
    uint64_t steps = 0;
    int64_t local_steps = 1;
    bool lockstep = true;
    // Exchanges go on beside training.
    bool overlaps = false;
    int kind = 0;
    absl::Duration step_time;
    // Set: exchanges are rounds of subnets of it, in the job's beginning with so many sites. Outlives
    // the worker.
    const SubnetEntries* subnets = nullptr;
    uint32_t sites = 0;
    // Set: exchanges move a core and an explorer.
    std::optional<CoreShare> core;
    // Of all parameters. Outlives the worker.
    const ModelShape* shape = nullptr;
    CodecChoice codecs;
    uint64_t job_seed = 0;
    // It also sends what must be refused.
    bool forges = false;
    // Of each shard, and of all.
    std::vector<ShardSlices> slices;
    uint64_t layout_hash = 0;
    // Where each shard is reached; where shards move, until the coordinator says where.
    std::vector<ShardDoor*> doors;
    // Set: who is at an address.
    std::function<ShardDoor*(const std::string& address)> find;
    // Set: checkpoints are kept there. Outlives the worker.
    SimFolder* folder = nullptr;
    // The process goes on as another member, of the same rank.
    std::function<void(uint32_t rank)> on_rejoin;
    Mutation mutation = Mutation::kNone;
  };
  // The pointers outlive it. Begins to join at once.
  SimWorker(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker, Options options);

  NodeId node() const { return node_; }
  // Its process is gone: it finished, gave up, or was killed.
  bool is_over() const { return !network_->IsAlive(node_); }
  MemberId member() const { return member_; }
  std::optional<uint32_t> wanted_rank() const { return options_.rank; }
  void Crash();
  // Its training stands still from its next step on, while it goes on renewing its lease.
  void Hang() { hangs_ = true; }
  std::string Describe() const;

 private:
  template <typename Reply>
  using Attempt = std::function<void(std::function<void(std::optional<absl::StatusOr<Reply>>)>)>;
  // Repeats what was lost; refusals are for `done`.
  template <typename Reply>
  void Retry(Attempt<Reply> attempt, std::function<void(absl::StatusOr<Reply>)> done);

  // One request to a shard, with its repetitions, wherever the shard goes.
  enum class CallKind { kPush, kPull, kOther };
  struct ShardCall {
    size_t server = 0;
    CallKind kind = CallKind::kOther;
    bool done = false;
    uint64_t attempt = 0;
    std::function<void()> start;
  };
  template <typename Reply>
  using Asking = std::function<void(SimServer*, std::function<void(absl::StatusOr<Reply>)>)>;
  template <typename Reply>
  void CallShard(size_t server, CallKind kind, Asking<Reply> ask,
                 std::function<void(absl::StatusOr<Reply>)> done);
  // The coordinator says who leads which shard.
  void FollowLeaders(const v1::ServerList& list);
  // A server does not answer as it should.
  void OnTrouble();

  void Join();
  void OnAdmitted(const v1::JoinReply& reply);
  void Renew();
  void AskRenewal(std::function<void(bool heard)> then);
  // `then` runs when the cut is there.
  void BeginEpoch(std::function<void()> then);
  bool Finished() const {
    return options_.steps > 0 ? step_ >= options_.steps : epoch_ >= options_.epochs;
  }
  int64_t StepsUntilExchange() const {
    return step_budget_ > 0 ? step_budget_ : options_.local_steps;
  }
  // Trains until an exchange is due.
  void Train();
  void OnStep();
  void PushPull();
  void PullFirst();
  IdleNotice NextRest() { return rest_ = {rest_.number + 1, true}; }
  // To the first stage of an evaluation; where members advance on their own, after the word that it
  // rests.
  void Arrive();
  // What the servers have committed; at an evaluation `evaluates` that, or only goes on from it.
  void ReadOutside(bool evaluates, std::function<void()> then);
  // As far as it knows, of the one that follows this exchange.
  bool IsLastPush(Exchange before) const;
  void PullFrom(size_t server, Exchange after, IdleNotice word);
  void SendPush(size_t server, std::function<ReceivedPush()> make);
  // --- codecs (sim_worker_codecs.cc) ---
  // One server's part of a push, as it is sent again and again.
  struct Coded {
    Codec codec;
    std::shared_ptr<const std::vector<char>> bytes;
    int64_t bad_entry = -1;
  };
  void BeginCoding();
  // By number of the entry; empty: nothing is.
  std::vector<float> HeldBack();
  void TakeUpHeld();
  // Whose file of its rank it goes on from, and after which exchange.
  std::optional<std::pair<MemberId, Exchange>> Writer() const;
  void KeepHeld(SimFolder::File* file);
  // `flushes`: with all that is held back.
  void EncodePush(bool flushes);
  SentPart EncodePart(size_t server, const KeySet& keys, const EntryNumbers& numbers);
  // The push as it arrives, but for what names its entries.
  std::function<ReceivedPush()> MakePush(size_t server) const;
  // --- rounds of subnets (sim_subnets.cc) ---
  void ExpectFirst(const v1::JoinReply& admission);
  void FetchAll(bool waits_only);
  void FetchFrom(size_t server, bool waits_only);
  void OnFetched(size_t server, bool waits_only, const PulledValues& fetched);
  // False: the round is cut otherwise, and is fetched again.
  bool FollowCut();
  std::function<ReceivedPush()> SubnetPush(size_t server) const;
  // A push of another site or round, and a fetch of a round that is over.
  void Forge(size_t server);
  // --- a core and an explorer (sim_cores.cc) ---
  void BeginKeys(Rank rank);
  // From all servers; they come while the next steps are computed.
  void AskCores();
  void TakeCores(std::function<void()> then);
  std::function<ReceivedPush()> SparsePush(size_t server);
  // The same push with its core's keys, which the server does not know any more.
  std::function<ReceivedPush()> WithKeys(size_t server, const std::function<ReceivedPush()>& push);
  // A push that must not be accepted.
  void ForgeSparse(size_t server, const std::function<ReceivedPush()>& right);
  bool FollowKeys();
  // The core whose entries are pulled; nullopt: all entries are.
  std::optional<CoreName> PulledCore(size_t server) {
    if (keys_ == nullptr || !keys_->value_keys().is_sparse()) return std::nullopt;
    return keys_->value_keys().sparse[server]->core->name;
  }
  void OnPart();
  void OnExchangeDone();
  // --- exchanges beside training (sim_worker_overlap.cc) ---
  void TrainOn();
  // The next exchange follows, once the one that goes on has ended.
  void EndOverlapped();
  void GoBackToSent();
  bool IsLast(Exchange exchange) const {
    return drain_exchange_ != 0 && exchange.value() >= drain_exchange_;
  }
  void BeginTraining();
  void Evaluate(v1::EvaluateStage stage);
  void OnEvaluated(v1::EvaluateStage stage, const v1::EvaluateReply& reply);
  void Leave();
  // --- checkpoints (sim_worker_checkpoints.cc) ---
  // What its pull says of a checkpoint.
  void Hear(CheckpointMark mark);
  // As TrainLoop::SaveIfAsked; `then` runs when training may go on.
  void SaveIfAsked(v1::Progress progress, bool evaluation_due, std::function<void()> then);
  void Save(CheckpointMark mark, v1::Progress progress, bool evaluation_due,
            std::function<void()> told);
  void TellSaved(v1::SavedRequest request, std::function<void(const v1::SavedReply&)> then);
  // As WorkerSaver::SaveLast, which has written to those up to number `saved`; leaves after that.
  void SaveLast(uint64_t saved);
  void Resume(const v1::JoinReply& reply);
  // It cannot go on, as `why` says; it may be that the job goes back to a checkpoint.
  void AskWhetherToRejoin(RejoinQuestion question, std::string why);
  void Rejoin();
  // A refusal: right if it is no member any more or the job has ended, else a violation. Ends the
  // worker.
  void GiveUp(const absl::Status& status);
  void End(absl::string_view why);
  // `what` may happen to one that is no member any more only.
  void CheckIsRemoved(absl::string_view what);
  v1::Progress ProgressText() const;
  // It waits for what becomes of it.
  bool stands() const { return gave_up_; }
  void Begin(v1::Progress::Work work) {
    work_ = work;
    ++beats_;
  }

  FaultyNetwork* const network_;
  SimCoordinator* const coordinator_;
  Checker* const checker_;
  const Options options_;
  const NodeId node_;

  std::vector<ShardDoor*> doors_;
  std::vector<uint64_t> lives_;  // of those who lead, as far as it is known
  std::vector<std::shared_ptr<ShardCall>> calls_;
  uint64_t servers_known_ = 0;
  bool renews_soon_ = false;
  std::vector<Checker::Knowledge> known_;  // by shard, of the last pull
  std::string doing_ = "joining";
  MemberId member_;
  Exchange exchange_;  // the last one begun
  uint64_t step_ = 0;
  uint64_t examples_ = 0;
  uint64_t epoch_ = 0;
  bool hangs_ = false;
  v1::Progress::Work work_ = v1::Progress::NOTHING;
  uint64_t beats_ = 0;
  v1::EpochCut cut_;
  int64_t since_exchange_ = 0;
  bool evaluation_due_ = false;
  bool has_pulled_ = false;
  uint64_t drain_exchange_ = 0;
  int64_t step_budget_ = 0;
  IdleNotice rest_;  // the last word to the servers
  uint64_t evaluation_ = 0;
  uint64_t attempt_ = 0;
  bool last_ = false;
  std::vector<Version> bases_;
  const EntryNumbers numbers_;
  const KeySet dense_;
  std::vector<float> replica_;  // by number
  std::unique_ptr<UpdateCoder> coder_;
  std::vector<Coded> coded_;                // by server, of the last push
  std::vector<CodedForms> forms_;           // the same
  std::optional<SimFolder::File> resumed_;  // of its rank, from the checkpoint that it goes on from
  SubnetPlace next_;                        // to be fetched
  std::optional<SubnetPlace> trained_;      // to be returned
  std::optional<SubnetPlace> recut_;
  int recuts_ = 0;
  Rank rank_;
  std::unique_ptr<ExchangeKeys> keys_;  // set: exchanges move a core
  Cores cores_;                         // asked for
  size_t cores_missing_ = 0;
  bool cores_due_ = false;
  uint64_t cores_told_ = 0;
  bool needs_all_ = false;
  std::function<void()> take_cores_;
  size_t parts_missing_ = 0;
  Generation generation_;          // that it was admitted in
  std::vector<Version> versions_;  // by shard, of the last read at an evaluation
  CheckpointMark told_;            // by the pulls of this exchange
  CheckpointMark late_;  // of the last one, that it has not written (Mutation::kSavesLate)
  uint64_t checkpoint_number_ = 0;
  bool saves_ = false;
  std::function<void()> saved_;  // waits for that
  // Of the exchange that goes on beside training, and where the worker was when it began.
  struct Sent {
    v1::Progress progress;
    bool evaluation_due = false;
    uint64_t step = 0;
    uint64_t epoch = 0;
    v1::EpochCut cut;
  };
  Sent sent_;
  bool in_flight_ = false;
  bool has_come_ = false;  // what it brings
  bool waits_for_it_ = false;
  v1::Progress evaluated_;
  int evaluates_at_start_ = 0;
  bool gave_up_ = false;
};

template <typename Reply>
void SimWorker::Retry(Attempt<Reply> attempt, std::function<void(absl::StatusOr<Reply>)> done) {
  attempt([this, attempt, done](std::optional<absl::StatusOr<Reply>> reply) {
    if (stands()) return;
    if (reply.has_value() && !absl::IsAborted(reply->status())) return done(*std::move(reply));
    network_->After(node_, network_->dice().Between(absl::Milliseconds(5), absl::Milliseconds(40)),
                    [this, attempt, done] { Retry<Reply>(attempt, done); });
  });
}

template <typename Reply>
void SimWorker::CallShard(size_t server, CallKind kind, Asking<Reply> ask,
                          std::function<void(absl::StatusOr<Reply>)> done) {
  const auto call = std::make_shared<ShardCall>();
  call->server = server;
  call->kind = kind;
  const std::weak_ptr<ShardCall> weak = call;
  const auto end = [this, weak, done](uint64_t attempt,
                                      std::optional<absl::StatusOr<Reply>> reply) {
    const std::shared_ptr<ShardCall> call = weak.lock();
    if (call == nullptr || call->done || attempt != call->attempt || stands()) return;
    const bool is_over = reply.has_value() && !absl::IsAborted(reply->status()) &&
                         !absl::IsUnavailable(reply->status());
    if (is_over) {
      call->done = true;
      return done(*std::move(reply));
    }
    OnTrouble();
    network_->After(node_, network_->dice().Between(absl::Milliseconds(5), absl::Milliseconds(40)),
                    [weak, attempt] {
                      const std::shared_ptr<ShardCall> call = weak.lock();
                      if (call != nullptr && !call->done && attempt == call->attempt) call->start();
                    });
  };
  call->start = [this, weak, ask, end] {
    const std::shared_ptr<ShardCall> call = weak.lock();
    const uint64_t attempt = ++call->attempt;
    ShardDoor* const door = doors_[call->server];
    network_->Call<absl::StatusOr<Reply>>(
        node_, door->node(),
        [door, shard = ShardId(call->server), generation = generation_,
         ask](std::function<void(absl::StatusOr<Reply>)> answer) {
          SimServer* const to = door->Find(shard);
          if (to == nullptr) return answer(absl::UnavailableError("not led by this server"));
          const absl::Status checked = to->CheckCaller(generation);
          if (!checked.ok()) return answer(checked);
          ask(to, answer);
        },
        [end, attempt](std::optional<absl::StatusOr<Reply>> reply) {
          end(attempt, std::move(reply));
        });
  };
  calls_.push_back(call);
  call->start();
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_WORKER_H_

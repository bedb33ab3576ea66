// The real coordinator on a simulated node. Where its state is kept its process may die, and another one goes on.
#ifndef TESSERA_TESTS_SIM_SIM_COORDINATOR_H_
#define TESSERA_TESTS_SIM_SIM_COORDINATOR_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "server/control/coordinator.h"
#include "server/control/kept_coordinator.h"
#include "server/control/state_times.h"
#include "tests/sim/mutation.h"
#include "tests/sim/sim_folder.h"
#include "tests/sim/faulty_network.h"

namespace tessera {

class SimCoordinator {
 public:
  struct Options {
    // Its state is kept, and this long it may be away before servers end.
    bool is_kept = false;
    absl::Duration away_timeout = absl::ZeroDuration();
    // Some writes take longer than anybody waits.
    bool is_slow = false;
    // Set: checkpoints are kept there. Outlives it.
    SimFolder* folder = nullptr;
    // Its disk fails now and then.
    bool has_faults = false;
    // A checkpoint is whole, and whoever goes on as the coordinator knows.
    std::function<void(uint64_t step)> on_whole;
    // Now and then, when leases have just been looked at: what it would tell people, and the number of its process.
    std::function<void(const v1::JobStatus& status, uint64_t life)> on_status;
    Mutation mutation = Mutation::kNone;
  };
  SimCoordinator(FaultyNetwork* network, JobFacts facts, Options options);
  SimCoordinator(FaultyNetwork* network, JobFacts facts)
      : SimCoordinator(network, std::move(facts), Options()) {}

  NodeId node() const { return node_; }
  // Of the process that lives, or of the one that lived last.
  Coordinator& state() { return kept_->coordinator(); }
  const Coordinator& state() const { return kept_->coordinator(); }
  bool is_kept() const { return options_.is_kept; }
  // The end of the job is kept: nobody goes on with it.
  bool ended() const { return state().ended() && kept_->MayBeTold(kept_->changes()); }

  // --- its death ---

  // The process dies. What it was writing is kept or not.
  void Die();
  // Another one goes on from what is kept.
  void Begin();
  bool is_here() const { return network_->IsAlive(node_); }
  bool has_kept_all() const { return is_here() && !kept_->IsAhead(); }
  // Counts processes: connections are to one of them.
  uint64_t life() const { return life_; }
  absl::Duration patience() const {
    return std::max(state().facts().lease_timeout, options_.away_timeout);
  }
  // Somebody was told what no later process knows of.
  bool has_told_unkept() const { return has_told_unkept_; }
  // A server has said so, and the job ends.
  bool has_given_up() const { return has_given_up_; }

  // A server's standing connection. Its messages go to `deliver`, on its own node.
  void Attach(NodeId server, v1::ServerHello hello,
              std::function<void(const v1::PlanMessage&)> deliver, uint64_t connection = 0);
  void FromServer(NodeId server, ShardId rank, v1::ShardMessage message, uint64_t connection = 0);
  // The connection of a dead server ends.
  void Detach(ShardId rank, uint64_t connection = 0);

  // A host's. Its message is the first that is said over it.
  void AttachHost(NodeId host, v1::HostMessage message,
                  std::function<void(const v1::HostOrder&)> deliver, uint64_t connection);
  void FromHost(NodeId host, uint32_t rank, v1::HostMessage message, uint64_t connection);
  void DetachHost(uint32_t rank, uint64_t connection);

  // When something last arrived from this node and was taken.
  absl::Time Heard(NodeId node) const {
    const auto found = heard_.find(node);
    return found == heard_.end() ? absl::InfinitePast() : found->second;
  }

  // One request of a worker; nullopt: the call was lost, ask again.
  template <typename Reply>
  using Done = std::function<void(std::optional<absl::StatusOr<Reply>>)>;
  template <typename Reply>
  void Ask(NodeId from, std::function<absl::StatusOr<Reply>(Coordinator&, absl::Time)> request,
           Done<Reply> done) {
    network_->Call<absl::StatusOr<Reply>>(
        from, node_,
        [this, from,
         request = std::move(request)](std::function<void(absl::StatusOr<Reply>)> answer) {
          heard_[from] = network_->now();
          absl::StatusOr<Reply> reply = request(state(), network_->now());
          WhenTold([answer = std::move(answer), reply = std::move(reply)] { answer(reply); });
          Deliver();
        },
        std::move(done));
  }
  void Evaluate(NodeId from, v1::EvaluateRequest request, Done<v1::EvaluateReply> done);
  void Drain();
  void AskForCheckpoint();
  // A member has left because training has ended: a plan may be without it, and without its part.
  bool training_is_over() const;

 private:
  // All processes have the network's clock.
  StateMoment Moment() const { return {network_->now(), "network's", network_->now()}; }
  struct Link {
    NodeId node;
    uint64_t life = 0;
    uint64_t connection = 0;
    std::function<void(const v1::PlanMessage&)> deliver;
  };
  struct HostLink {
    NodeId node;
    uint64_t life = 0;
    uint64_t connection = 0;
    std::function<void(const v1::HostOrder&)> deliver;
  };

  // Now, or once it is kept what has just happened.
  void WhenTold(std::function<void()> then);
  void Install(std::unique_ptr<Coordinator> coordinator, const v1::CoordinatorWord& word);
  void Tick();
  // Sends what the state machine wants sent and may be told.
  void Deliver();
  void Send(KeptCoordinator::Batch batch);
  void SendWord(ShardId server);
  template <typename Hello>
  absl::Status CheckHello(const Hello& hello) {
    absl::Status checked = kept_->CheckHello(hello, network_->now());
    has_given_up_ = has_given_up_ || absl::IsFailedPrecondition(checked);
    return checked;
  }
  // As LiveCoordinator's thread.
  void Keep();
  // As CheckpointKeeper: one task after the other.
  void WorkOnFolder();
  void OnDisk(const DiskTask& task, const absl::Status& status);

  FaultyNetwork* const network_;
  const JobFacts facts_;
  const Options options_;
  NodeId node_;
  uint64_t life_ = 0;
  absl::Time ticked_;
  std::unique_ptr<KeptCoordinator> kept_;
  v1::CoordinatorState stored_;
  std::optional<v1::CoordinatorState> writing_;
  uint64_t writes_ = 0;
  std::deque<DiskTask> tasks_;
  bool works_on_folder_ = false;
  bool has_told_unkept_ = false;
  bool has_given_up_ = false;
  struct Waiting {
    uint64_t changes = 0;
    std::function<void()> then;
  };
  std::deque<Waiting> waiting_;
  std::map<NodeId, absl::Time> heard_;
  std::map<ShardId, Link> links_;
  std::map<uint32_t, HostLink> hosts_;
  struct Parked {
    uint64_t after_event = 0;
    std::function<void(absl::StatusOr<v1::EvaluateReply>)> answer;
  };
  std::map<MemberId, Parked> parked_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_COORDINATOR_H_

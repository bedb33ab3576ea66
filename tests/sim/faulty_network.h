// Nodes and what lies between them: messages are late, lost, doubled and overtake each other; nodes
// freeze and die.
#ifndef TESSERA_TESTS_SIM_FAULTY_NETWORK_H_
#define TESSERA_TESTS_SIM_FAULTY_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "tests/sim/dice.h"
#include "tests/sim/event_queue.h"

namespace tessera {

// One life of one process.
using NodeId = Id<struct NodeTag>;

// Probabilities, per message.
struct NetworkFaults {
  double drop = 0;       // the connection breaks; the caller notices some time later
  double duplicate = 0;  // arrives a second time, perhaps long after
  double straggle = 0;   // is much later than usual, so that others overtake it
  double sever = 0;      // the caller loses a call that has arrived and is being worked on

  // Those of one run: each kind is there more often than not.
  static NetworkFaults Drawn(Dice* dice);
};

class FaultyNetwork {
 public:
  // Both outlive it.
  FaultyNetwork(EventQueue* queue, Dice* dice) : queue_(queue), dice_(dice) {}

  NodeId AddNode();
  // Its timers and what is sent to it vanish; of its messages on their way, half arrive.
  void Kill(NodeId node);
  bool IsAlive(NodeId node) const { return nodes_[node.value()].alive; }
  // Nothing happens at it until then; it notices nothing.
  void Freeze(NodeId node, absl::Time until);
  // Nothing that `from` sends arrives at `to` before then: calls are lost, though some arrive when it is
  // over, and streams stand still. The other direction is as it was.
  void Cut(NodeId from, NodeId to, absl::Time until);
  // One direction between the two, or both, as chance has it.
  void CutLink(NodeId a, NodeId b, absl::Duration longest);
  void set_faults(NetworkFaults faults) { faults_ = faults; }
  absl::Time now() const { return queue_->now(); }
  Dice& dice() { return *dice_; }

  // A timer of `node`.
  void After(NodeId node, absl::Duration delay, std::function<void()> event);
  // A connection of its own between any two nodes. 0 is one that all have.
  uint64_t AddConnection() { return ++connections_; }
  // Messages of one connection arrive in order, none is lost unless it is cut.
  void Stream(NodeId from, NodeId to, std::function<void()> deliver, uint64_t connection = 0);
  // The connection is broken for good: what is on its way between the two is lost, and so is what one that has
  // not noticed sends from now on.
  void CutStreams(NodeId a, NodeId b, uint64_t connection);

  // `handler` runs at `to`, perhaps twice or never, and answers through its argument, now or later.
  // `done` runs at `from` once, with the first answer, or with nullopt when the call was lost;
  // whether `to` has seen it is then unknown.
  template <typename Reply>
  void Call(NodeId from, NodeId to, std::function<void(std::function<void(Reply)>)> handler,
            std::function<void(std::optional<Reply>)> done) {
    const std::shared_ptr<Pending> call = Begin(from, to, [done] { done(std::nullopt); });
    const auto answer = [this, from, to, call, done](Reply reply) {
      Answer(call, to, from, [done, reply = std::move(reply)] { done(reply); });
    };
    Request(call, from, to, [handler, answer] { handler(answer); });
  }

 private:
  struct Node {
    bool alive = true;
    absl::Time frozen_until = absl::InfinitePast();
    std::deque<std::function<void()>> held;  // what would have happened since, in order
  };
  struct StreamState {
    absl::Time last;  // when its last message arrives
    bool is_cut = false;
  };
  struct Pending {
    bool over = false;
    NodeId from;
    NodeId to;
    std::function<void()> lost;
  };

  absl::Duration Delay();
  // When what is sent now begins to travel: later where the way is cut.
  absl::Time WayIsOpen(NodeId from, NodeId to) const;
  // Runs `event` at `node` at `time`, or when it thaws, or never.
  void RunAt(NodeId node, absl::Time time, std::function<void()> event);
  void Thaw(NodeId node);
  std::shared_ptr<Pending> Begin(NodeId from, NodeId to, std::function<void()> lost);
  void Request(const std::shared_ptr<Pending>& call, NodeId from, NodeId to,
               std::function<void()> deliver);
  void Answer(const std::shared_ptr<Pending>& call, NodeId from, NodeId to,
              std::function<void()> done);
  void Lose(const std::shared_ptr<Pending>& call);

  EventQueue* const queue_;
  Dice* const dice_;
  NetworkFaults faults_;
  std::vector<Node> nodes_;
  uint64_t connections_ = 0;
  std::map<std::tuple<NodeId, NodeId, uint64_t>, StreamState> streams_;
  std::map<std::pair<NodeId, NodeId>, absl::Time> cuts_;
  std::vector<std::weak_ptr<Pending>> pending_;  // calls to nodes, for when one dies
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_FAULTY_NETWORK_H_

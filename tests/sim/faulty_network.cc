#include "tests/sim/faulty_network.h"

#include <algorithm>

namespace tessera {

NetworkFaults NetworkFaults::Drawn(Dice* dice) {
  NetworkFaults faults;
  if (dice->Chance(0.7)) faults.drop = 0.01 * dice->Below(12);
  if (dice->Chance(0.7)) faults.duplicate = 0.01 * dice->Below(15);
  if (dice->Chance(0.7)) faults.straggle = 0.01 * dice->Below(12);
  if (dice->Chance(0.7)) faults.sever = 0.01 * dice->Below(8);
  return faults;
}

NodeId FaultyNetwork::AddNode() {
  nodes_.emplace_back();
  return NodeId(nodes_.size() - 1);
}

void FaultyNetwork::Kill(NodeId node) {
  nodes_[node.value()].alive = false;
  for (const std::weak_ptr<Pending>& weak : pending_) {
    const std::shared_ptr<Pending> call = weak.lock();
    if (call != nullptr && !call->over && call->to == node) Lose(call);
  }
}

void FaultyNetwork::Freeze(NodeId node, absl::Time until) {
  absl::Time& frozen_until = nodes_[node.value()].frozen_until;
  frozen_until = std::max(frozen_until, until);
}

void FaultyNetwork::Cut(NodeId from, NodeId to, absl::Time until) {
  absl::Time& open = cuts_[{from, to}];
  open = std::max(open, until);
}

void FaultyNetwork::CutLink(NodeId a, NodeId b, absl::Duration longest) {
  const absl::Time until = queue_->now() + dice_->Between(absl::ZeroDuration(), longest);
  const uint64_t which = dice_->Below(3);
  if (which != 1) Cut(a, b, until);
  if (which != 0) Cut(b, a, until);
}

absl::Time FaultyNetwork::WayIsOpen(NodeId from, NodeId to) const {
  const auto cut = cuts_.find({from, to});
  return cut == cuts_.end() ? queue_->now() : std::max(queue_->now(), cut->second);
}

absl::Duration FaultyNetwork::Delay() {
  if (dice_->Chance(faults_.straggle)) {
    return dice_->Between(absl::Milliseconds(5), absl::Milliseconds(400));
  }
  return dice_->Between(absl::Microseconds(100), absl::Milliseconds(2));
}

void FaultyNetwork::RunAt(NodeId node, absl::Time time, std::function<void()> event) {
  queue_->At(time, [this, node, event = std::move(event)]() mutable {
    Node& at = nodes_[node.value()];
    if (!at.alive) return;
    const bool is_first = at.held.empty();
    if (is_first && at.frozen_until <= queue_->now()) return event();
    at.held.push_back(std::move(event));
    if (is_first) queue_->At(at.frozen_until, [this, node] { Thaw(node); });
  });
}

void FaultyNetwork::Thaw(NodeId node) {
  while (true) {
    Node& at = nodes_[node.value()];
    if (!at.alive || at.held.empty()) return at.held.clear();
    if (at.frozen_until > queue_->now()) {
      return queue_->At(at.frozen_until, [this, node] { Thaw(node); });
    }
    // What happens may add nodes.
    const std::function<void()> event = std::move(at.held.front());
    at.held.pop_front();
    event();
  }
}

void FaultyNetwork::After(NodeId node, absl::Duration delay, std::function<void()> event) {
  RunAt(node, queue_->now() + delay, std::move(event));
}

void FaultyNetwork::Stream(NodeId from, NodeId to, std::function<void()> deliver,
                           uint64_t connection) {
  StreamState& stream = streams_[{from, to, connection}];
  stream.last = std::max(stream.last, WayIsOpen(from, to) + Delay());
  RunAt(to, stream.last, [&stream, deliver = std::move(deliver)] {
    if (!stream.is_cut) deliver();
  });
}

void FaultyNetwork::CutStreams(NodeId a, NodeId b, uint64_t connection) {
  streams_[{a, b, connection}].is_cut = true;
  streams_[{b, a, connection}].is_cut = true;
}

std::shared_ptr<FaultyNetwork::Pending> FaultyNetwork::Begin(NodeId from, NodeId to,
                                                             std::function<void()> lost) {
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(),
                                [](const std::weak_ptr<Pending>& call) { return call.expired(); }),
                 pending_.end());
  auto call = std::make_shared<Pending>();
  call->from = from;
  call->to = to;
  call->lost = std::move(lost);
  pending_.push_back(call);
  return call;
}

void FaultyNetwork::Lose(const std::shared_ptr<Pending>& call) {
  RunAt(call->from, queue_->now() + dice_->Between(absl::Milliseconds(1), absl::Milliseconds(50)),
        [call] {
          if (call->over) return;
          call->over = true;
          call->lost();
        });
}

void FaultyNetwork::Request(const std::shared_ptr<Pending>& call, NodeId from, NodeId to,
                            std::function<void()> deliver) {
  if (!IsAlive(to) || dice_->Chance(faults_.drop)) return Lose(call);
  const absl::Time open = WayIsOpen(from, to);
  if (open > queue_->now()) {
    Lose(call);
    if (dice_->Chance(0.7)) return;
  }
  const auto arrive = [this, from, deliver] {
    if (!IsAlive(from) && dice_->Chance(0.5)) return;
    deliver();
  };
  RunAt(to, open + Delay(), arrive);
  if (dice_->Chance(faults_.duplicate)) {
    RunAt(to, open + Delay() + dice_->Between(absl::ZeroDuration(), absl::Milliseconds(200)),
          arrive);
  }
  if (dice_->Chance(faults_.sever)) Lose(call);
}

void FaultyNetwork::Answer(const std::shared_ptr<Pending>& call, NodeId from, NodeId to,
                           std::function<void()> done) {
  if (call->over) return;
  const bool is_cut = WayIsOpen(from, to) > queue_->now();
  if (is_cut || dice_->Chance(faults_.drop)) return Lose(call);
  RunAt(to, queue_->now() + Delay(), [call, done = std::move(done)] {
    if (call->over) return;
    call->over = true;
    done();
  });
}

}  // namespace tessera

#include "worker/activations/layer_workers.h"

#include <algorithm>

namespace tessera {
namespace {

std::vector<LayerWorker>::const_iterator Find(const std::vector<LayerWorker>& workers, MemberId member) {
  return std::find_if(workers.begin(), workers.end(),
                      [&](const LayerWorker& worker) { return worker.member == member; });
}

}  // namespace

LayerWorkers::LayerWorkers(const v1::WorkerList& list, const LayerSplit& split)
    : split_(split), generation_(list.generation()) {
  for (const v1::WorkerEntry& entry : list.workers()) {
    const Rank rank(entry.rank());
    (split.is_linear(rank) ? linear_ : front_)
        .push_back({MemberId(entry.member()), rank, entry.address()});
  }
}

std::optional<Rank> LayerWorkers::RankOfFront(MemberId member) const {
  const auto found = Find(front_, member);
  if (found == front_.end()) return std::nullopt;
  return found->rank;
}

Rank LayerWorkers::HomeOf(const LayerWorker& front) const {
  const auto fronts = static_cast<uint64_t>(split_.front_workers);
  return Rank(fronts + front.rank.value() * static_cast<uint64_t>(split_.linear_workers) / fronts);
}

std::optional<LayerWorker> LayerWorkers::LinearOf(MemberId front) const {
  const auto found = Find(front_, front);
  if (found == front_.end() || linear_.empty()) return std::nullopt;
  const Rank home = HomeOf(*found);
  // They are in rank order.
  for (const LayerWorker& linear : linear_) {
    if (linear.rank >= home) return linear;
  }
  return linear_.front();
}

std::vector<LayerWorker> LayerWorkers::AtHomeWith(MemberId linear) const {
  std::vector<LayerWorker> senders;
  const auto found = Find(linear_, linear);
  for (const LayerWorker& front : front_) {
    if (found != linear_.end() && HomeOf(front) == found->rank) senders.push_back(front);
  }
  return senders;
}

}  // namespace tessera

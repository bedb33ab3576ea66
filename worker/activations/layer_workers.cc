#include "worker/activations/layer_workers.h"

#include <algorithm>

namespace tessera {
namespace {

std::vector<LayerWorker>::const_iterator Find(const std::vector<LayerWorker>& workers,
                                              MemberId member) {
  return std::find_if(workers.begin(), workers.end(),
                      [&](const LayerWorker& worker) { return worker.member == member; });
}

LayerWorker WorkerOf(const v1::WorkerEntry& entry) {
  return {MemberId(entry.member()), Rank(entry.rank()), entry.address(), entry.first_step()};
}

}  // namespace

LayerWorkers::LayerWorkers(const v1::WorkerList& list, const LayerSplit& split)
    : split_(split), generation_(list.generation()) {
  for (const v1::WorkerEntry& entry : list.workers()) {
    (split.is_linear(Rank(entry.rank())) ? linear_ : front_).push_back(WorkerOf(entry));
  }
  // Workers that have gone are remembered, as they decide where members sent in steps before.
  for (const v1::WorkerEntry& entry : list.former()) former_.push_back(WorkerOf(entry));
}

bool LayerWorkers::Has(MemberId member) const {
  return Find(front_, member) != front_.end() || Find(linear_, member) != linear_.end();
}

std::optional<Rank> LayerWorkers::RankOfFront(MemberId member) const {
  const auto found = Find(front_, member);
  if (found == front_.end()) return std::nullopt;
  return found->rank;
}

Rank LayerWorkers::HomeOf(const LayerWorker& front) const {
  const auto fronts = static_cast<uint64_t>(split_.front_workers);
  // Fronts are spread evenly: linear worker j is home to the fronts i with floor(i m / n) = j, of n fronts and m linear
  // workers.
  return Rank(fronts + front.rank.value() * static_cast<uint64_t>(split_.linear_workers) / fronts);
}

uint64_t LayerWorkers::Distance(Rank home, Rank linear) const {
  const auto places = static_cast<uint64_t>(split_.linear_workers);
  // Steps upwards from home, round the end: the next rank that is there stands in for a linear worker that is not.
  return (linear.value() + places - home.value()) % places;
}

std::optional<LayerWorker> LayerWorkers::LinearOf(MemberId front, uint64_t step) const {
  const auto found = Find(front_, front);
  if (found == front_.end()) return std::nullopt;
  const Rank home = HomeOf(*found);
  std::optional<LayerWorker> nearest;
  for (const LayerWorker& linear : linear_) {
    // It begins with a later step.
    if (linear.first_step > step) continue;
    if (!nearest || Distance(home, linear.rank) < Distance(home, nearest->rank)) nearest = linear;
  }
  return nearest;
}

bool LayerWorkers::LinearComesLater(uint64_t step) const {
  return !linear_.empty() &&
         std::all_of(linear_.begin(), linear_.end(),
                     [&](const LayerWorker& linear) { return linear.first_step > step; });
}

std::vector<LayerWorker> LayerWorkers::AtHomeWith(MemberId linear, uint64_t step) const {
  std::vector<LayerWorker> senders;
  const auto found = Find(linear_, linear);
  if (found == linear_.end()) return senders;
  for (const LayerWorker& front : front_) {
    if (front.first_step <= step && HomeOf(front) == found->rank) senders.push_back(front);
  }
  return senders;
}

std::optional<uint64_t> LayerWorkers::LeftAt(MemberId front, MemberId linear, uint64_t since,
                                             uint64_t step) const {
  const auto sender = Find(front_, front), receiver = Find(linear_, linear);
  if (sender == front_.end() || receiver == linear_.end()) return std::nullopt;
  const Rank home = HomeOf(*sender);
  std::optional<uint64_t> left;
  for (const std::vector<LayerWorker>* const workers : {&linear_, &former_}) {
    for (const LayerWorker& other : *workers) {
      // A linear worker that came since, nearer to the member's home than this one, has taken it over.
      const bool has_come = since < other.first_step && other.first_step <= step;
      const bool is_before = Distance(home, other.rank) < Distance(home, receiver->rank);
      if (has_come && is_before) left = std::min(left.value_or(other.first_step), other.first_step);
    }
  }
  return left;
}

}  // namespace tessera

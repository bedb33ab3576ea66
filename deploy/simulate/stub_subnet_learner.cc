#include "deploy/simulate/stub_subnet_learner.h"

#include <algorithm>
#include <utility>

namespace tessera {

StubSubnetLearner::StubSubnetLearner(const Surroundings* surroundings, Rank rank, Exchange first)
    : around_(*surroundings) {
  SubnetPlace place;
  place.seed = around_.seed;
  place.round = first.value();
  place.site = static_cast<uint32_t>(rank.value());
  place.shares.assign(std::max<uint64_t>(around_.workers, rank.value() + 1), 1);
  value_keys_ = KeysOf(place);
}

KeySet StubSubnetLearner::KeysOf(const SubnetPlace& place) const {
  return SubnetKeys(around_.shape, SubnetOf(around_.shape, around_.groups, place), place,
                    around_.servers);
}

absl::Status StubSubnetLearner::AdoptValues() {
  if (!value_keys_.subnet.has_value()) {
    update_keys_ = value_keys_;
    return absl::OkStatus();
  }
  SubnetPlace next = *value_keys_.subnet;
  ++next.round;
  update_keys_ = std::exchange(value_keys_, KeysOf(next));
  return absl::OkStatus();
}

absl::Status StubSubnetLearner::Recut(const SubnetPlace& place) {
  value_keys_ = KeysOf(place);
  return absl::OkStatus();
}

absl::Status StubSubnetLearner::BeginTail() {
  value_keys_ = around_.arrays->keys();
  return absl::OkStatus();
}

}  // namespace tessera

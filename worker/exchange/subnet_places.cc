#include "worker/exchange/subnet_places.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera {

SubnetPlace FirstPlace(const v1::Job& job, Rank rank, Exchange first) {
  SubnetPlace place;
  place.seed = job.seed();
  place.round = first.value();
  place.site = static_cast<uint32_t>(rank.value());
  // All sites have equal shares until the servers say otherwise.
  place.shares.assign(std::max<uint64_t>(job.cluster().workers(), rank.value() + 1), 1);
  return place;
}

SubnetPlace NextPlace(SubnetPlace place) {
  ++place.round;
  return place;
}

absl::Status CheckParts(const Subnet& subnet, const SubnetPlace& place) {
  // A site without a neuron in some layer would be a network that is cut through.
  for (size_t group = 0; group < subnet.neurons.size(); ++group) {
    if (!subnet.neurons[group].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("subnet: site ", place.site, " of ", place.sites(), " has none of the ",
                     subnet.groups.widths[group], " neurons of hidden layer ", group, " in round ",
                     place.round, ", want at least 1; use fewer workers"));
  }
  return absl::OkStatus();
}

}  // namespace tessera

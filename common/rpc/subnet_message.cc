#include "common/rpc/subnet_message.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

v1::SubnetKeys ToMessage(const SubnetPlace& place) {
  v1::SubnetKeys message;
  message.set_seed(place.seed);
  message.set_round(place.round);
  message.set_site(place.site);
  message.mutable_shares()->Add(place.shares.begin(), place.shares.end());
  return message;
}

void SetKeys(const KeySet& keys, v1::SubnetRequest* request) {
  const SubnetPlace& place = *keys.subnet;
  request->set_seed(place.seed);
  request->set_round(place.round);
  request->set_site(place.site);
  request->set_sites(place.sites());
  request->set_waits_only(keys.waits_only);
  request->mutable_shares()->Clear();
  const auto differs = [&](uint32_t share) { return share != place.shares.front(); };
  if (std::any_of(place.shares.begin(), place.shares.end(), differs)) {
    request->mutable_shares()->Add(place.shares.begin(), place.shares.end());
  }
}

absl::StatusOr<SubnetPlace> PlaceOf(const v1::SubnetKeys& message) {
  constexpr uint64_t kRoundEnd = uint64_t{1} << 40;
  constexpr uint64_t kSharesEnd = uint64_t{1} << 31;
  if (message.round() >= kRoundEnd) {
    return absl::InvalidArgumentError(
        absl::StrCat("subnet: round is ", message.round(), ", want less than 2^40"));
  }
  if (message.site() >= static_cast<uint32_t>(message.shares_size())) {
    return absl::InvalidArgumentError(absl::StrCat("subnet: site is ", message.site(),
                                                   ", want less than the ", message.shares_size(),
                                                   " sites that have a share"));
  }
  uint64_t sum = 0;
  for (const uint32_t share : message.shares()) {
    sum += share;
    if (share > 0 && sum < kSharesEnd) continue;
    return absl::InvalidArgumentError(
        "subnet: shares are not each at least 1 with a sum below 2^31");
  }
  SubnetPlace place;
  place.seed = message.seed();
  place.round = message.round();
  place.site = message.site();
  place.shares.assign(message.shares().begin(), message.shares().end());
  return place;
}

}  // namespace tessera

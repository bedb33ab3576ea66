#include "common/rpc/key_set_message.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// A job has no more (method.*.fragments).
constexpr uint32_t kFragmentsMax = 1024;
constexpr uint32_t kParametersMax = uint32_t{1} << 30;
// Numbers of a key form that the two ends may come to know are below this.
constexpr uint32_t kKeyFormMax = 255;

// Writes one alternative of NamedKeys.
struct KeySetWriter {
  v1::KeySet* message;

  void operator()(const AllEntries&) { message->mutable_dense(); }
  void operator()(const SubnetPlace& place) { *message->mutable_subnet() = ToMessage(place); }
  void operator()(const NamedCore& core) {
    v1::SparseKeys& keys = *message->mutable_sparse();
    keys = ToMessage(core.name);
    keys.set_key_form(static_cast<uint32_t>(core.key_form));
    if (core.keys) keys.set_keys_bytes(core.keys->size());
  }
  void operator()(const ParameterRange& layers) { *message->mutable_layers() = ToMessage(layers); }
  void operator()(const Fragment& fragment) {
    message->mutable_fragment()->set_number(static_cast<uint32_t>(fragment.number));
    message->mutable_fragment()->set_count(static_cast<uint32_t>(fragment.count));
  }
  void operator()(const RowRange& rows) { *message->mutable_rows() = ToMessage(rows); }
  // A set that is unknown here leaves its kind unset, and the other end answers that it does not know it.
  void operator()(const UnknownKeys&) { message->clear_kind(); }
};

absl::StatusOr<NamedCore> NamedCoreOf(const v1::SparseKeys& message) {
  NamedCore core;
  TESSERA_ASSIGN_OR_RETURN(core.name, CoreOf(message));
  // A form that is unknown here stays unknown, and decoding refuses it with its number.
  core.key_form = static_cast<int>(std::min(message.key_form(), kKeyFormMax));
  // The keys themselves come as the payload's first bytes; here only their presence is known.
  if (message.keys_bytes() > 0) core.keys.emplace();
  return core;
}

absl::StatusOr<ParameterRange> LayersOf(const v1::LayerKeys& message) {
  if (message.parameter_begin() > message.parameter_end() ||
      message.parameter_end() > kParametersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers are parameters ", message.parameter_begin(), " to ",
                     message.parameter_end(), ", want a range below ", kParametersMax));
  }
  return ParameterRange{static_cast<int>(message.parameter_begin()),
                        static_cast<int>(message.parameter_end())};
}

absl::StatusOr<Fragment> FragmentOf(const v1::FragmentKeys& message) {
  if (message.number() >= message.count() || message.count() > kFragmentsMax) {
    return absl::InvalidArgumentError(absl::StrCat("fragment is ", message.number(), " of ",
                                                   message.count(), ", want one of 1 to ",
                                                   kFragmentsMax, " fragments, from 0 on"));
  }
  return Fragment{static_cast<int>(message.number()), static_cast<int>(message.count())};
}

// What is too large for the index types is too large for any parameter.
RowRange RowsOf(const v1::RowKeys& keys) {
  return {static_cast<int>(std::min<uint32_t>(keys.parameter(), std::numeric_limits<int>::max())),
          static_cast<int64_t>(
              std::min<uint64_t>(keys.row_begin(), std::numeric_limits<int64_t>::max())),
          static_cast<int64_t>(
              std::min<uint64_t>(keys.row_end(), std::numeric_limits<int64_t>::max()))};
}

}  // namespace

v1::KeySet ToMessage(const NamedKeys& keys) {
  v1::KeySet message;
  std::visit(KeySetWriter{&message}, keys);
  return message;
}

absl::StatusOr<NamedKeys> KeysOf(const v1::KeySet& message) {
  switch (message.kind_case()) {
    case v1::KeySet::kDense:
      return NamedKeys(AllEntries());
    case v1::KeySet::kSubnet:
      return PlaceOf(message.subnet());
    case v1::KeySet::kSparse:
      return NamedCoreOf(message.sparse());
    case v1::KeySet::kLayers:
      return LayersOf(message.layers());
    case v1::KeySet::kFragment:
      return FragmentOf(message.fragment());
    case v1::KeySet::kRows:
      return NamedKeys(RowsOf(message.rows()));
    // A newer build may name kinds that this one has never seen.
    default:
      return NamedKeys(UnknownKeys());
  }
}

bool SetAnswered(const NamedKeys& asked, const NamedKeys& own, v1::ChunkHeader* header) {
  const bool is_had = !std::holds_alternative<UnknownKeys>(own);
  const auto* const wanted = std::get_if<SubnetPlace>(&asked);
  if (wanted == nullptr) {
    header->set_need_keys(!is_had && std::holds_alternative<NamedCore>(asked));
    return is_had;
  }
  header->set_whole_model(!is_had);
  // The worker learns in the answer that the tail has begun and exchanges are of the whole model.
  if (!is_had) return false;
  const SubnetPlace& place = std::get<SubnetPlace>(own);
  *header->mutable_subnet() = ToMessage(place);
  // Another place than was asked for is an answer, too: the round was cut for other members.
  return place == *wanted;
}

v1::SubnetKeys ToMessage(const SubnetPlace& place) {
  v1::SubnetKeys message;
  message.set_seed(place.seed);
  message.set_round(place.round);
  message.set_site(place.site);
  message.mutable_shares()->Add(place.shares.begin(), place.shares.end());
  return message;
}

v1::SparseKeys ToMessage(const CoreName& core) {
  // Bytes are copied as they lie in memory, and must mean the same on both ends.
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "signatures are little-endian");
  const uint64_t halves[] = {core.signature.low, core.signature.high};
  v1::SparseKeys message;
  message.set_core(core.number);
  message.set_signature(std::string(reinterpret_cast<const char*>(halves), sizeof(halves)));
  return message;
}

v1::LayerKeys ToMessage(const ParameterRange& layers) {
  v1::LayerKeys message;
  message.set_parameter_begin(static_cast<uint32_t>(layers.begin));
  message.set_parameter_end(static_cast<uint32_t>(layers.end));
  return message;
}

v1::RowKeys ToMessage(const RowRange& rows) {
  v1::RowKeys message;
  message.set_parameter(static_cast<uint32_t>(rows.parameter));
  message.set_row_begin(static_cast<uint64_t>(rows.row_begin));
  message.set_row_end(static_cast<uint64_t>(rows.row_end));
  return message;
}

absl::StatusOr<SubnetPlace> PlaceOf(const v1::SubnetKeys& message) {
  // Bounds that leave room in all later sums; a job reaches neither.
  constexpr uint64_t kRoundEnd = uint64_t{1} << 40;
  constexpr uint64_t kSharesEnd = uint64_t{1} << 31;
  if (message.shares_size() > static_cast<int>(kSitesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shares are ", message.shares_size(), ", want at most ", kSitesMax));
  }
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
    // The sum is checked as it grows, as 64-bit sums of 32-bit shares cannot overflow before it is.
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

absl::StatusOr<CoreName> CoreOf(const v1::SparseKeys& message) {
  uint64_t halves[2];
  if (message.signature().size() != sizeof(halves)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "core: signature has ", message.signature().size(), " bytes, want ", sizeof(halves)));
  }
  std::memcpy(halves, message.signature().data(), sizeof(halves));
  CoreName name;
  name.number = message.core();
  name.signature = {halves[1], halves[0]};
  return name;
}

void SetKeys(const KeySet& keys, v1::KeySet* message) {
  // A core's keys are named by server, and a subnet's in requests of their own.
  *message = ToMessage(keys.is_sparse() || keys.subnet ? NamedKeys(AllEntries()) : keys.On(0));
}

void SetKeys(const KeySet& keys, v1::SubnetRequest* request) {
  const SubnetPlace& place = *keys.subnet;
  request->set_seed(place.seed);
  request->set_round(place.round);
  request->set_site(place.site);
  request->set_sites(place.sites());
  request->set_waits_only(keys.waits_only);
  request->mutable_shares()->Clear();
  // Equal shares, the common case, are not sent: none means that they are equal.
  const auto differs = [&](uint32_t share) { return share != place.shares.front(); };
  if (std::any_of(place.shares.begin(), place.shares.end(), differs)) {
    request->mutable_shares()->Add(place.shares.begin(), place.shares.end());
  }
}

absl::StatusOr<SubnetPlace> AskedPlace(const v1::SubnetRequest& request) {
  if (request.sites() > kSitesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("sites are ", request.sites(), ", want at most ", kSitesMax));
  }
  // There are no shares, which says that all are equal, or one for each site.
  if (request.shares_size() != 0 && request.shares_size() != static_cast<int>(request.sites())) {
    return absl::InvalidArgumentError(absl::StrCat("shares are ", request.shares_size(),
                                                   ", want none or one for each of ",
                                                   request.sites(), " sites"));
  }
  v1::SubnetKeys keys;
  keys.set_seed(request.seed());
  keys.set_round(request.round());
  keys.set_site(request.site());
  *keys.mutable_shares() = request.shares();
  if (keys.shares_size() == 0) keys.mutable_shares()->Resize(request.sites(), 1);
  return PlaceOf(keys);
}

}  // namespace tessera

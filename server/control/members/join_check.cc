#include "server/control/members/join_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/method/train_rows.h"
#include "common/rpc/control_protocol.h"
#include "server/control/digest_check.h"
#include "server/control/saved_job.h"

namespace tessera {
namespace {

// A worker's description (its host and process), and its address.
constexpr size_t kDescriptionBytesMax = 1024;
// Servers and the evaluation know for ever that there was a member.
constexpr size_t kMembersEver = size_t{1} << 17;

}  // namespace

absl::StatusOr<Rank> JoinCheck::Check(const v1::JoinRequest& request, absl::Time now) const {
  TESSERA_RETURN_IF_ERROR(CheckRequest(request));
  TESSERA_ASSIGN_OR_RETURN(const Rank rank, ChooseRank(request, now));
  TESSERA_RETURN_IF_ERROR(CheckLayers(rank, request));
  TESSERA_RETURN_IF_ERROR(CheckRows(request));
  return rank;
}

absl::StatusOr<Rank> JoinCheck::ChooseRank(const v1::JoinRequest& request, absl::Time now) const {
  Rank rank;
  if (request.has_rank()) {
    rank = Rank(request.rank());
    if (const MemberRecord* holder = members_.LiveAt(rank); holder != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "join: rank ", rank.value(), " is held by ", holder->description, ", last heard ",
          absl::FormatDuration(absl::Trunc(now - holder->last_heard, absl::Milliseconds(1))),
          " ago; choose another, or wait until its lease of ",
          absl::FormatDuration(facts_.lease_timeout), " is over"));
    }
  } else {
    for (const auto& [taken, member] : members_.live()) {
      if (taken != rank) break;
      rank = rank.Next();
    }
    if (rank.value() >= kRankEnd) return absl::ResourceExhaustedError("join: no rank is free");
    if (facts_.front_workers > 0 && rank.value() >= static_cast<uint64_t>(facts_.workers)) {
      return absl::AlreadyExistsError(
          absl::StrCat("join: all ", facts_.workers,
                       " ranks are held, and which layers a worker trains follows from its rank; ",
                       "if one of their workers is gone, wait until its lease of ",
                       absl::FormatDuration(facts_.lease_timeout), " is over"));
    }
  }
  return rank;
}

// Members that the job waits for are told when it begins; this is for one more.
absl::Status JoinCheck::CheckRows(const v1::JoinRequest& request) const {
  const uint64_t live = members_.live().size();
  if (facts_.members_max > 0 && live >= static_cast<uint64_t>(facts_.members_max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: hidden neurons in the smallest layer are ", facts_.members_max,
                     ", want more than the ", live, " workers; there is no part for one more"));
  }
  if (facts_.is_of_tensors || facts_.rows_are_local ||
      live < static_cast<uint64_t>(facts_.workers)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> steps = EpochSteps(
      static_cast<int64_t>(request.rows()), static_cast<int64_t>(live) + 1, facts_.batch_size);
  if (steps.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("join: ", steps.status().message(), "; there is no work for one more"));
}

absl::Status JoinCheck::CheckRequest(const v1::JoinRequest& request) const {
  if (request.protocol() != kControlProtocol) {
    return absl::InvalidArgumentError(absl::StrCat("join: protocol is ", request.protocol(),
                                                   ", want ", kControlProtocol,
                                                   "; all must run the same build"));
  }
  TESSERA_RETURN_IF_ERROR(CheckDigest("join", request.job_digest(), request.job_text(), facts_));
  // 0: a client that learns the layout from the reply.
  if (request.layout_hash() != 0 && request.layout_hash() != facts_.layout_hash) {
    return absl::InvalidArgumentError(
        absl::StrFormat("join: layout hash is %016x, want %016x; all must run the same build",
                        request.layout_hash(), facts_.layout_hash));
  }
  if (request.has_rank() && request.rank() >= kRankEnd) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: rank is ", request.rank(), ", want one in [0, ", kRankEnd, ")"));
  }
  if (request.description().size() > kDescriptionBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("join: description is ",
                                                   request.description().size(),
                                                   " bytes, want at most ", kDescriptionBytesMax));
  }
  if (request.address().size() > kDescriptionBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("join: address is ", request.address().size(),
                                                   " bytes, want at most ", kDescriptionBytesMax));
  }
  if (members_.last().value() >= kMembersEver) {
    return absl::ResourceExhaustedError(
        absl::StrCat("join: ", members_.last().value(),
                     " workers have joined since the coordinator began, want at most ",
                     kMembersEver, "; let the job go on from a checkpoint"));
  }
  if (request.rows() == 0 && !facts_.is_of_tensors) {
    return absl::InvalidArgumentError("join: training rows are 0, want at least 1");
  }
  if (request.rows() > kMemberRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat("join: training rows are ", request.rows(),
                                                   ", want at most ", kMemberRowsMax));
  }
  // What each worker of a job of tensors reads is its own business.
  if (facts_.is_of_tensors) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(CheckValues(request));
  if (facts_.rows_are_local) return absl::OkStatus();
  if (members_.live().empty()) return absl::OkStatus();
  // They all have as many as the first.
  const MemberRecord& other = *members_.Find(members_.live().begin()->second);
  if (other.rows != request.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "join: training rows are ", request.rows(), ", want ", other.rows, " as worker ",
        other.rank.value(), " has; its data differ, or data.partition should be local"));
  }
  for (const auto& [rank, member] : members_.live()) {
    const MemberRecord& record = *members_.Find(member);
    const auto differ = [](uint64_t a, uint64_t b) { return a != 0 && b != 0 && a != b; };
    const bool trains_others = differ(record.train_sum, request.train_sum());
    if (!trains_others && !differ(record.test_sum, request.test_sum())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("join: its ", trains_others ? "training" : "test",
                     " data are not those of worker ", rank.value(), " (", record.description,
                     "): other rows, values or labels; give both the same files, or set "
                     "data.partition to local"));
  }
  return absl::OkStatus();
}

// Where rows are each worker's own, nothing but this shows that one file has shades from 0 to 255 and another the same
// shades from 0 to 1.
absl::Status JoinCheck::CheckValues(const v1::JoinRequest& request) const {
  const auto words = [](v1::ValueKind kind) {
    return kind == v1::VALUES_BYTES ? "bytes, which are divided by 255"
                                    : "numbers that are taken as they are";
  };
  if (request.values() == v1::VALUES_UNKNOWN) return absl::OkStatus();
  for (const auto& [rank, member] : members_.live()) {
    const MemberRecord& record = *members_.Find(member);
    if (record.values == v1::VALUES_UNKNOWN || record.values == request.values()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "join: its data are ", words(request.values()), ", want ", words(record.values),
        ", as those of worker ", rank.value(), " (", record.description,
        ") are: one model would see rows on two scales; save all files as one type"));
  }
  return absl::OkStatus();
}

absl::Status JoinCheck::CheckLayers(Rank rank, const v1::JoinRequest& request) const {
  if (facts_.front_workers == 0) return absl::OkStatus();
  if (rank.value() >= static_cast<uint64_t>(facts_.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: rank is ", rank.value(), ", want one in [0, ", facts_.workers,
                     "); which layers a worker trains follows from its rank"));
  }
  if (facts_.has_data(rank) || !request.address().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("join: address is empty, want host:port where the other workers reach it "
                   "(tessera-worker --listen); rank ",
                   rank.value(), " trains the linear layers"));
}

}  // namespace tessera

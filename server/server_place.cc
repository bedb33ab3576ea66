#include "server/server_place.h"

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/limits.h"

namespace tessera {

bool MayCoordinate(const v1::Job& job, int rank) {
  return rank == 0 || job.cluster().coordinator().etcd_size() > 0;
}

absl::StatusOr<ServerPlace> FindPlace(const v1::Job& job, const PlaceFlags& flags,
                                      bool is_replica) {
  const auto& addresses = job.cluster().servers().addresses();
  const int64_t count = job.cluster().servers().count();
  // A replica may join a running job beyond those that it began with.
  const int64_t ranks = is_replica ? kServersMax : count;
  if (flags.rank < 0 || flags.rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank: got ", flags.rank, ", want 0 to ", ranks - 1, " (cluster.servers)"));
  }
  ServerPlace found;
  found.listen = flags.listen;
  const bool is_listed = flags.rank < addresses.size();
  // The address that the job file lists for this rank.
  if (found.listen.empty() && is_listed) found.listen = addresses[flags.rank];
  if (found.listen.empty() && !addresses.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: not given, and cluster.servers has no address of rank ", flags.rank));
  }
  if (found.listen.empty()) {
    return absl::InvalidArgumentError(
        "--listen: not given, and cluster.servers is only a count; list the servers' host:port "
        "there, or use `tessera run`");
  }
  // 0.0.0.0 is no address that others can call: they are told the listed one.
  if (IsAnyAddress(found.listen)) {
    if (!is_listed) {
      return absl::InvalidArgumentError(
          absl::StrCat("--listen: got \"", found.listen,
                       "\", want an address that the other machines can call, or list the "
                       "servers' host:port in cluster.servers"));
    }
    found.announced = addresses[flags.rank];
  }
  found.coordinator = flags.coordinator;
  // Without etcd server 0 is the coordinator.
  if (found.coordinator.empty() && !addresses.empty()) found.coordinator = addresses[0];
  if (found.coordinator.empty() && !MayCoordinate(job, flags.rank)) {
    return absl::InvalidArgumentError(
        "--coordinator: not given, and cluster.servers is only a count; want server 0's host:port");
  }
  return found;
}

}  // namespace tessera

// What a server's port takes of those who connect to it (docs/operating/security.md, What a stranger can do).
#ifndef TESSERA_SERVER_PORT_LIMITS_H_
#define TESSERA_SERVER_PORT_LIMITS_H_

#include <cstdint>

#include "common/rpc/windows.h"
#include "proto/job.pb.h"

namespace tessera {

// Several times what the job's own processes come to, so that only strangers meet it.
struct PortLimits {
  int connections_per_host = 0;
  // Pushes of one host of which not even the header has come.
  int64_t half_open_pushes_per_host = 0;
  // Bytes of answers that were made for the readers of one host, and that they have not taken.
  int64_t unread_bytes_per_host = 0;
  // Bytes that connections hold of what they received.
  int64_t receive_bytes = 0;
};

// The limits of a server that owns so many bytes of the parameters.
inline PortLimits PortLimitsOf(const v1::Job& job, int64_t slice_bytes) {
  const int64_t workers = job.cluster().workers();
  const int64_t servers = job.cluster().servers().count();
  // A server with standbys may lead and follow others' shards, too.
  const int64_t shards = job.cluster().replicas() > 0 ? servers : 1;
  PortLimits limits;
  // All workers and servers may be on one host, or behind one address. A worker has a connection or two for pushes
  // and pulls, those of calls that go on several, one to the coordinator, and as many that the other side has yet to
  // give up; another server one for what it leads, one as a host, one for a log or a copy, and as many again.
  limits.connections_per_host =
      static_cast<int>(64 + (8 + 2 * kStripesMax) * workers + 8 * servers);
  // All push at the same time. Some more may have joined.
  limits.half_open_pushes_per_host = 64 + 2 * workers;
  // Each worker has a chunk or two of a mebibyte on its way.
  limits.unread_bytes_per_host = (int64_t{64} << 20) + (int64_t{4} << 20) * workers;
  // The job's own pushes never are more than the next one and those that are staged, one slice each.
  limits.receive_bytes = (int64_t{1} << 30) + 8 * shards * slice_bytes;
  return limits;
}

}  // namespace tessera

#endif  // TESSERA_SERVER_PORT_LIMITS_H_

// Where a server listens, where the others reach it, and where it finds the coordinator: from the job and the flags.
#ifndef TESSERA_SERVER_SERVER_PLACE_H_
#define TESSERA_SERVER_SERVER_PLACE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace tessera {

// Where a server is, each address as host:port.
struct ServerPlace {
  std::string listen;
  // The address at which the others reach it; empty: the one that listening took.
  std::string announced;
  // Where the coordinator is. Empty: this server may be it, and nobody has said where it is.
  std::string coordinator;
};

// The flags of the command line; texts may be empty.
struct PlaceFlags {
  int rank = 0;
  std::string listen;
  std::string coordinator;
};

// Whether the server of this rank may be the coordinator: the servers elect it, or it is server 0.
bool MayCoordinate(const v1::Job& job, int rank);

// `is_replica`: every server has the whole model, and one may join beyond those that the job lists.
//   kInvalidArgument  the rank is none of the job's, or an address is missing; the message names the flag
absl::StatusOr<ServerPlace> FindPlace(const v1::Job& job, const PlaceFlags& flags, bool is_replica);

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_PLACE_H_

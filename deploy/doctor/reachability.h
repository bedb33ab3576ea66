// Does anybody listen at an address, and could a process of this machine?
#ifndef TESSERA_DEPLOY_DOCTOR_REACHABILITY_H_
#define TESSERA_DEPLOY_DOCTOR_REACHABILITY_H_

#include <string>

#include "absl/time/time.h"

namespace tessera {

enum class Reach {
  kOpen,         // a connection was made
  kRefused,      // the machine is there, and nobody listens
  kSilent,       // no answer
  kNoRoute,      // the network knows no way there
  kUnknownHost,  // the name has no address
};

// Tries host:port, which IsHostPort allows, at every address that the host has.
Reach TryConnect(const std::string& address, absl::Duration patience);

struct OwnPort {
  // Whether one of the host's addresses is this machine's.
  bool is_own = false;
  // Why nobody could listen at the port now; empty: somebody could, or the host is another.
  std::string problem;
};

// Whether this machine can have the port of host:port. Takes it for a moment, without listening: nobody who starts
// to listen meanwhile is kept from it (SO_REUSEADDR, as servers have it).
OwnPort TryOwnPort(const std::string& address);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_REACHABILITY_H_

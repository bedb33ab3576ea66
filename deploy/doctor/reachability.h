// Does anybody listen at an address?
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

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_REACHABILITY_H_

// What is said of a server of the job that gives no status.
#ifndef TESSERA_DEPLOY_DOCTOR_MISSING_SERVER_H_
#define TESSERA_DEPLOY_DOCTOR_MISSING_SERVER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "deploy/doctor/findings.h"
#include "deploy/doctor/reachability.h"

namespace tessera {

struct MissingServer {
  int rank = 0;
  std::string address;
  Reach reach = Reach::kRefused;
  // How long a silent server was waited for.
  absl::Duration patience;
  // What this machine can tell of the address's port.
  OwnPort port;
  // How the call for the status ended, where somebody listens.
  absl::Status answer;
};

// `job_runs`: another server of the job is up, so that this one should be. Before that one that is not up is no more
// than noted, unless it could not be started. `calls_tls`: this program called it with TLS. Pure.
Finding JudgeMissing(const MissingServer& server, bool job_runs, bool calls_tls);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_MISSING_SERVER_H_

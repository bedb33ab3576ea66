// Whether others could reach a server at its name, which may stand for something else on its own machine.
#ifndef TESSERA_DEPLOY_DOCTOR_OWN_NAME_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_OWN_NAME_CHECK_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/host_addresses.h"
#include "deploy/doctor/findings.h"

namespace tessera {

// Whether somebody listens at the port on one of this machine's addresses that are no loopback addresses.
bool ListensOutside(int port, absl::Duration patience);

// Checks server `rank`, which others call at `address` (host:port). A name of which all addresses are loopback here is
// this machine's, as Debian writes it into /etc/hosts (127.0.1.1): a server that is started there listens on loopback
// alone, and other machines, to which the name stands for something else, cannot reach it. Nothing where it is not so,
// or where a server listens elsewhere by now. `listens_outside` is asked about the port where that is of interest.
Findings CheckOwnName(int rank, const std::string& address, const Resolve& resolve,
                      const std::function<bool(int port)>& listens_outside);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_OWN_NAME_CHECK_H_

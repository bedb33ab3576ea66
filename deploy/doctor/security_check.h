// Whether the files under `security` would let this machine's processes speak with the others.
#ifndef TESSERA_DEPLOY_DOCTOR_SECURITY_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_SECURITY_CHECK_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "deploy/doctor/findings.h"

namespace tessera {

// `files` are those that Security::Load has taken. `hosts` are what others call servers on this machine; empty: none
// runs here. Looks at what a TLS handshake does, and at nothing of other machines:
//   every certificate's first and last day, at `now`; of the authority's the others may do without one that is over
//   of which certificates of the authority's OpenSSL makes no use, as they are too weak
//   whether `authority` believes the own certificate, as a server's and as a caller's
//   whether the own certificate is for each of `hosts`
//   whether there is a token that workers and servers can call with
// Nothing is good: what is in force is for the caller to say.
Findings CheckSecurity(const SecurityFiles& files, const std::vector<std::string>& hosts,
                       absl::Time now);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_SECURITY_CHECK_H_

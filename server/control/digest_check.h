// Whether a process that wants to take part has the coordinator's job.
#ifndef TESSERA_SERVER_CONTROL_DIGEST_CHECK_H_
#define TESSERA_SERVER_CONTROL_DIGEST_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/control/job_facts.h"

namespace tessera {

// `text` is what the digest is of, as its owner says; empty: it does not say. Neither is believed.
//   kInvalidArgument  the digest is another job's; the message begins with `where`, names the keys that differ, and
//                     says what to do
absl::Status CheckDigest(absl::string_view where, absl::string_view digest, absl::string_view text,
                         const JobFacts& facts);

// `sum` is ServerHello.initial_sum. kInvalidArgument: the server would begin with other values than the coordinator.
absl::Status CheckInitialSum(absl::string_view where, uint64_t sum, const JobFacts& facts);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_DIGEST_CHECK_H_

#include "server/control/digest_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/job_difference.h"
#include "common/rpc/control_protocol.h"

namespace tessera {

absl::Status CheckDigest(absl::string_view where, absl::string_view digest, absl::string_view text,
                         const JobFacts& facts) {
  if (digest == facts.digest) return absl::OkStatus();
  const std::string differences = Describe(DifferencesOf(text, facts.job_text));
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": job digest is \"", digest.substr(0, kDigestQuoted), "\", want \"",
                   facts.digest, "\"", differences.empty() ? "" : ", as keys differ: ", differences,
                   "; start it with the same job file"));
}

}  // namespace tessera

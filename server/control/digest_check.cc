#include "server/control/digest_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

absl::Status CheckInitialSum(absl::string_view where, uint64_t sum, const JobFacts& facts) {
  if (sum == facts.initial_sum) return absl::OkStatus();
  const auto text = [](uint64_t each) {
    return each == 0 ? std::string("none") : absl::StrFormat("of sum %016x", each);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": model.init: its file is ", text(sum), ", want ", text(facts.initial_sum),
      ", as server 0 has it; give all servers the same file"));
}

}  // namespace tessera

#include "deploy/doctor/server_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

// The status of server 0 lists all servers, that of another one itself.
const v1::ServerStatus* Own(const WantedServer& want, const v1::JobStatus& status) {
  for (const v1::ServerStatus& server : status.servers()) {
    if (static_cast<int>(server.rank()) == want.rank) return &server;
  }
  return nullptr;
}

}  // namespace

Findings JudgeServer(const WantedServer& want, const v1::JobStatus& status, absl::Time asked,
                     absl::Time answered) {
  Findings findings;
  const std::string who = absl::StrCat("server ", want.rank, " at ", want.address);
  const auto problem = [&](std::string what, std::string advice) {
    findings.push_back({Finding::Kind::kProblem, absl::StrCat(who, ": ", what), std::move(advice)});
  };
  if (status.job_digest() != want.job_digest) {
    problem(absl::StrCat("its job's digest is ", status.job_digest().substr(0, 12),
                         ", this job's is ", want.job_digest.substr(0, 12)),
            "another job runs there, or its job file differs in a key that is not local; compare "
            "`tessera check` on both machines");
    // A server of another job can be asked nothing else.
    return findings;
  }
  if (!status.version().empty() && status.version() != want.version) {
    problem(absl::StrCat("its version is ", status.version(), ", this one is ", want.version),
            "install the same build on all machines");
  }
  if (status.layout_hash() != want.layout_hash) {
    problem(absl::StrFormat("its layout hash is %016x, want %016x", status.layout_hash(),
                            want.layout_hash),
            "install the same build on all machines");
    return findings;
  }
  const v1::ServerStatus* const own = Own(want, status);
  if (own == nullptr) {
    problem(absl::StrCat("it does not know a server ", want.rank),
            "server 0 has not heard of it, or another rank was started there; look at --rank");
    return findings;
  }
  // 0 where the server or this machine has not computed them.
  if (want.initial_hash != 0 && own->counters().initial_hash() != 0 &&
      own->counters().initial_hash() != want.initial_hash) {
    problem(
        "its initial parameters are not those of this machine, from the same seed",
        "the builds or the processors compute differently; install the same build on all machines");
  }
  // Half of the way there and back is the best guess of when it looked at its clock.
  const absl::Duration skew =
      absl::FromUnixNanos(status.clock_ns()) - (asked + (answered - asked) / 2);
  // The time that the question took cannot be told from the clocks' difference.
  if (status.clock_ns() != 0 && absl::AbsDuration(skew) > kClockSkewMax + (answered - asked) / 2) {
    findings.push_back(
        {Finding::Kind::kNote,
         absl::StrCat(
             who, ": its clock is ",
             absl::FormatDuration(absl::Trunc(absl::AbsDuration(skew), absl::Milliseconds(1))),
             skew > absl::ZeroDuration() ? " ahead of" : " behind", " this machine's"),
         "leases do not depend on it, but logs are hard to read together; run a time service"});
  }
  if (!findings.empty()) return findings;
  findings.push_back({Finding::Kind::kGood,
                      absl::StrCat(who, ": ", status.state(), ", security ",
                                   status.security().empty() ? "none" : status.security()),
                      ""});
  return findings;
}

}  // namespace tessera

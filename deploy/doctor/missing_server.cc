#include "deploy/doctor/missing_server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/rpc/host_addresses.h"
#include "common/rpc/own_name.h"

namespace tessera {
namespace {

// Judges a server at whose address somebody listens.
Finding JudgeAnswer(const std::string& who, const absl::Status& answer, bool calls_tls) {
  const std::string what = absl::StrCat(who, ": somebody listens there and gives no status: ");
  const absl::string_view text = answer.message();
  // gRPC's words where nothing comes over a connection that the system has taken.
  // A stopped process has a listening socket, which the system answers for.
  if (absl::IsDeadlineExceeded(answer) || absl::StrContains(text, "timed out")) {
    return {Finding::Kind::kProblem,
            absl::StrCat(what, "it takes the connection and says nothing (", text, ")"),
            "the process there may be stopped, swapped out, or no server; look at it on its "
            "machine"};
  }
  // A TLS server closes what does not begin with TLS; it answers nothing that is no TLS.
  // An HTTP/1 server answers gRPC's first bytes with a line of its own.
  const bool speaks_other = absl::StrContains(text, "Failed parsing HTTP/2") ||
                            absl::StrContains(text, "header with status: ");
  std::string advice =
      "another program, or a server with TLS: then the job here wants "
      "security.authority";
  if (speaks_other) {
    advice = "another program listens there: stop it, or name another port in cluster.servers";
  } else if (calls_tls) {
    advice =
        "another program, a server without TLS, or certificates and tokens that do not fit; "
        "docs/operating/security.md";
  }
  return {Finding::Kind::kProblem, absl::StrCat(what, text), std::move(advice)};
}

// Judges a machine that refuses connections: a problem where the job runs, or where the port could not be had.
Finding JudgeRefused(const std::string& who, const MissingServer& server, bool job_runs) {
  if (server.port.is_own && !server.port.problem.empty()) {
    return {Finding::Kind::kProblem,
            absl::StrCat(who,
                         ": nobody listens there, and no server could: this machine does not "
                         "give that port: ",
                         server.port.problem),
            "name another port in cluster.servers, or see who has it: ss -tanp; ports below 1024 "
            "want more rights"};
  }
  std::string start = absl::StrCat("start it there: tessera-server --job JOB --rank ", server.rank);
  // What a name is on the server's own machine nobody here knows.
  if (!server.port.is_own && HasName(server.address)) {
    absl::StrAppend(&start, "; where \"", ParseHostPort(server.address)->host,
                    "\" is a loopback address there (/etc/hosts), ",
                    ListenEverywhere(server.address));
  }
  if (job_runs) {
    return {Finding::Kind::kProblem,
            absl::StrCat(who, ": its machine refuses connections to that port"),
            absl::StrCat(start, "; if it runs, it listens on another port or on loopback alone")};
  }
  return {Finding::Kind::kNote,
          absl::StrCat(who, ": its machine refuses connections to that port, so it is not up yet",
                       server.port.is_own ? "; the port is free" : ""),
          start};
}

}  // namespace

Finding JudgeMissing(const MissingServer& server, bool job_runs, bool calls_tls) {
  const std::string who = absl::StrCat("server ", server.rank, " at ", server.address);
  switch (server.reach) {
    case Reach::kOpen:
      return JudgeAnswer(who, server.answer, calls_tls);
    case Reach::kRefused:
      return JudgeRefused(who, server, job_runs);
    case Reach::kSilent:
      return {Finding::Kind::kProblem,
              absl::StrCat(who, ": no answer within ", absl::FormatDuration(server.patience)),
              "its machine is down, or a firewall drops TCP to that port"};
    case Reach::kNoRoute:
      return {Finding::Kind::kProblem, absl::StrCat(who, ": this machine knows no way there"),
              "look at the address in cluster.servers and at this machine's network"};
    case Reach::kUnknownHost:
      break;
  }
  return {Finding::Kind::kProblem, absl::StrCat(who, ": the host's name is not known here"),
          "correct the name in cluster.servers, or use an IP address"};
}

}  // namespace tessera

// What doctor says of servers that give no status, and of the ports that they would have.
#include "deploy/doctor/missing_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

using Catch::Contains;

MissingServer Missing(Reach reach, OwnPort port = {}, absl::Status answer = absl::OkStatus()) {
  return {1, "10.0.0.2:7000", reach, absl::Seconds(3), port, answer};
}

Finding Answering(const absl::Status& answer, bool calls_tls = false) {
  return JudgeMissing(Missing(Reach::kOpen, {}, answer), /*job_runs=*/false, calls_tls);
}

// A socket at a free port of 127.0.0.1.
struct Socket {
  Socket() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }
  ~Socket() { Close(); }
  void Close() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string address;
};

}  // namespace

TEST_CASE("before a job runs a server that is not up is noted", "[doctor]") {
  const Finding before = JudgeMissing(Missing(Reach::kRefused), false, false);
  CHECK(before.kind == Finding::Kind::kNote);
  CHECK(before.what ==
        "server 1 at 10.0.0.2:7000: its machine refuses connections to that port, so it is not up "
        "yet");
  CHECK(before.advice == "start it there: tessera-server --job JOB --rank 1");
  CHECK_THAT(JudgeMissing(Missing(Reach::kRefused, {true, ""}), false, false).what,
             Contains("; the port is free"));
  const Finding later = JudgeMissing(Missing(Reach::kRefused), /*job_runs=*/true, false);
  CHECK(later.kind == Finding::Kind::kProblem);
  CHECK_THAT(later.advice, Contains("--rank 1; if it runs, it listens on another port"));
}

TEST_CASE("a server whose port cannot be had is a problem before it starts", "[doctor]") {
  const Finding finding =
      JudgeMissing(Missing(Reach::kRefused, {true, "Permission denied"}), false, false);
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK_THAT(finding.what, Contains("this machine does not give that port: Permission denied"));
}

TEST_CASE("a machine that cannot be reached is a problem before it starts", "[doctor]") {
  for (const Reach reach : {Reach::kSilent, Reach::kNoRoute, Reach::kUnknownHost}) {
    const Finding finding = JudgeMissing(Missing(reach), false, false);
    CHECK(finding.kind == Finding::Kind::kProblem);
    CHECK_FALSE(finding.advice.empty());
  }
  CHECK_THAT(JudgeMissing(Missing(Reach::kSilent), false, false).what,
             Contains("no answer within 3s"));
}

TEST_CASE("who takes a connection and says nothing is not taken for another program", "[doctor]") {
  const absl::Status frozen[] = {
      absl::UnavailableError("connections to all backends failing; last error: UNKNOWN: "
                             "ipv4:127.0.0.1:7000: timed out before receiving SETTINGS frame"),
      absl::DeadlineExceededError("Deadline Exceeded")};
  for (const absl::Status& answer : frozen) {
    for (const bool calls_tls : {false, true}) {
      const Finding finding = Answering(answer, calls_tls);
      CHECK(finding.kind == Finding::Kind::kProblem);
      CHECK_THAT(finding.what, Contains("it takes the connection and says nothing"));
      CHECK_THAT(finding.advice, Contains("stopped, swapped out") && !Contains("TLS"));
    }
  }
}

TEST_CASE("who speaks something else is another program, and nothing else", "[doctor]") {
  for (const char* const text :
       {"ipv4:127.0.0.1:7000: Failed parsing HTTP/2", "Received http2 header with status: 404"}) {
    const Finding finding = Answering(absl::UnavailableError(text));
    CHECK_THAT(finding.what,
               Contains("somebody listens there and gives no status: ") && Contains(text));
    CHECK_THAT(finding.advice, Contains("another program listens there") && !Contains("TLS"));
  }
  // As a server with TLS does of plain text.
  const absl::Status closed = absl::UnavailableError("ipv4:127.0.0.1:7000: Socket closed");
  CHECK_THAT(Answering(closed).advice, Contains("a server with TLS"));
  CHECK_THAT(Answering(closed, true).advice, Contains("certificates and tokens"));
}

TEST_CASE("a port is this machine's, and free or not", "[doctor]") {
  CHECK_FALSE(TryOwnPort("192.0.2.1:7000").is_own);
  CHECK_FALSE(TryOwnPort("nowhere.invalid:7000").is_own);
  Socket taken;
  // Who has it does not listen.
  CHECK(TryConnect(taken.address, absl::Seconds(3)) == Reach::kRefused);
  const OwnPort own = TryOwnPort(taken.address);
  CHECK(own.is_own);
  CHECK(own.problem == "Address already in use");
  taken.Close();
  const OwnPort later = TryOwnPort(taken.address);
  CHECK(later.is_own);
  CHECK(later.problem.empty());
}

}  // namespace tessera

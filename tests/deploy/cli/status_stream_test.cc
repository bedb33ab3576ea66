#include "deploy/cli/status_stream.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// An address that is nobody else's, and where nobody listens before a server of this test does.
class Reserved {
 public:
  Reserved() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    REQUIRE(setsockopt(socket_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    text_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Reserved() { close(socket_); }

  const std::string& text() const { return text_; }

 private:
  const int socket_;
  std::string text_;
};

// A job of which there is one status to tell.
class Job final : public v1::Status::Service {
 public:
  explicit Job(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  grpc::Status Watch(grpc::ServerContext*, const v1::StatusRequest*,
                     grpc::ServerWriter<v1::JobStatus>* writer) override {
    v1::JobStatus status;
    status.set_step(17);
    writer->Write(status);
    return grpc::Status::OK;
  }

 private:
  std::unique_ptr<grpc::Server> server_;
};

bool ComesTrue(absl::Duration within, const std::function<bool()>& condition) {
  const absl::Time end = SteadyNow() + within;
  while (!condition() && SteadyNow() < end) absl::SleepFor(absl::Milliseconds(5));
  return condition();
}

TEST_CASE("a status that comes late is waited for by those who have patience", "[status_stream]") {
  const Reserved address;
  StatusStream impatient(address.text(), absl::Milliseconds(10));
  StatusStream patient(address.text(), absl::Milliseconds(10), absl::Minutes(1));
  // An impatient one shows how long it takes to hear that nobody is there; twice that is enough.
  const absl::Time begin = SteadyNow();
  REQUIRE(ComesTrue(absl::Minutes(1), [&] { return impatient.ended().has_value(); }));
  CHECK(absl::IsUnavailable(*impatient.ended()));
  CHECK_THAT(std::string(impatient.ended()->message()),
             Catch::StartsWith("status of " + address.text()));
  const absl::Duration refusal = SteadyNow() - begin;
  CHECK_FALSE(
      ComesTrue(refusal + absl::Milliseconds(200), [&] { return patient.ended().has_value(); }));
  Job job(address.text());
  REQUIRE(ComesTrue(absl::Minutes(1), [&] { return patient.ended().has_value(); }));
  CHECK(patient.ended()->ok());
  REQUIRE(patient.latest().has_value());
  CHECK(patient.latest()->step() == 17);
  CHECK(patient.received() == 1);
  CHECK(impatient.received() == 0);
  CHECK_FALSE(impatient.latest().has_value());
}

TEST_CASE("who has patience with a status can be ended all the same", "[status_stream]") {
  const Reserved address;
  const absl::Time begin = SteadyNow();
  { StatusStream patient(address.text(), absl::Milliseconds(10), absl::Hours(1)); }
  CHECK(SteadyNow() - begin < absl::Minutes(1));
}

}  // namespace
}  // namespace tessera

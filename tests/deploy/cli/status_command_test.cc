#include "deploy/cli/status_command.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

// A job of which there is one status to tell. Then the stream ends as it is told, or goes on in silence.
class Job final : public v1::Status::Service {
 public:
  Job(const std::string& state, const std::string& failure, std::optional<grpc::Status> end)
      : end_(end) {
    status_.set_job("a job");
    status_.set_state(state);
    status_.set_failure(failure);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  const std::string& address() const { return address_; }

  grpc::Status Watch(grpc::ServerContext* context, const v1::StatusRequest*,
                     grpc::ServerWriter<v1::JobStatus>* writer) override {
    writer->Write(status_);
    if (end_.has_value()) return *end_;
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  }

 private:
  const std::optional<grpc::Status> end_;
  v1::JobStatus status_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// Has what is written to `stream` in a file until the end of its life.
class Captured {
 public:
  Captured(std::FILE* stream, const std::string& name)
      : stream_(stream),
        path_(absl::StrCat(getenv("TEST_TMPDIR"), "/", name)),
        kept_(dup(fileno(stream))) {
    std::fflush(stream_);
    const int file = open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    REQUIRE(file >= 0);
    REQUIRE(dup2(file, fileno(stream_)) >= 0);
    close(file);
  }
  ~Captured() { Restore(); }

  std::string text() {
    Restore();
    std::ifstream file(path_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  void Restore() {
    if (kept_ < 0) return;
    std::fflush(stream_);
    dup2(kept_, fileno(stream_));
    close(kept_);
    kept_ = -1;
  }

  std::FILE* const stream_;
  const std::string path_;
  int kept_;
};

struct Watched {
  int code = -1;
  std::string out, error;
};

Watched Watch(const Job& job, absl::Duration silence_shown = absl::Seconds(30),
              absl::Duration silence_max = absl::Seconds(60)) {
  StatusOptions options;
  options.address = job.address();
  options.watch = true;
  options.silence_shown = silence_shown;
  options.silence_max = silence_max;
  Watched watched;
  Captured out(stdout, "out"), error(stderr, "error");
  watched.code = ShowStatus(options);
  watched.out = out.text();
  watched.error = error.text();
  return watched;
}

TEST_CASE("who watches a job that ends normally hears no more than its status", "[cli][status]") {
  const Watched watched = Watch(Job("done", "", grpc::Status::OK));
  CHECK(watched.code == 0);
  CHECK(absl::StrContains(watched.out, "a job: done"));
  CHECK(watched.error == "");
}

TEST_CASE("who watches a job that fails hears why, and the exit code says so", "[cli][status]") {
  const Watched watched = Watch(Job("done", "server 1 is gone", grpc::Status::OK));
  CHECK(watched.code == 1);
  CHECK(watched.error == "tessera: the job has failed: server 1 is gone\n");
}

TEST_CASE("who watches a server that goes in mid-training hears that the connection is lost",
          "[cli][status]") {
  const Watched watched =
      Watch(Job("training", "", grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed")));
  CHECK(watched.code == 1);
  CHECK(absl::StartsWith(
      watched.error, "tessera: connection lost while the job was training: status of 127.0.0.1:"));
  const Watched ended = Watch(Job("training", "", grpc::Status::OK));
  CHECK(ended.code == 1);
  CHECK(ended.error ==
        "tessera: the server does not tell of the job any more, which was training\n");
}

TEST_CASE("who watches a server that tells nothing hears so, and does not wait for ever",
          "[cli][status]") {
  const Job job("training", "", std::nullopt);
  constexpr absl::Duration kSilenceMax = absl::Seconds(6);
  const Watched watched = Watch(job, absl::Milliseconds(100), kSilenceMax);
  CHECK(watched.code == 1);
  CHECK(absl::StrContains(watched.out, "a job: training"));
  // The number of seconds depends on when a busy machine lets it look, which is before it gives up.
  const std::string silent = absl::StrCat("tessera: no news from ", job.address(), " for ");
  REQUIRE(absl::StartsWith(watched.error, silent));
  absl::Duration told;
  REQUIRE(absl::ParseDuration(
      watched.error.substr(silent.size(), watched.error.find('\n') - silent.size()), &told));
  CHECK(told < kSilenceMax);
  CHECK(absl::StrContains(watched.error,
                          absl::StrCat("tessera: ", job.address(), " has told nothing for 6s, ")));
}

}  // namespace
}  // namespace tessera

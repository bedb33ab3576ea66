#include "server/rpc/replica_copier.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/replica_table_message.h"

namespace tessera {
namespace {

// Between looks whether everybody pushes here, and between attempts.
constexpr absl::Duration kPause = absl::Milliseconds(20);
// After a copy that would not do.
constexpr absl::Duration kPauseAfterCopy = absl::Milliseconds(200);
constexpr absl::Duration kLogInterval = absl::Seconds(10);

}  // namespace

ReplicaCopier::~ReplicaCopier() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.Notify();
    // A call that waits for its donor must not hold up the end.
    if (call_ != nullptr) call_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

void ReplicaCopier::CopyFrom(const std::string& donor) {
  absl::MutexLock lock(&mutex_);
  // The donor has gone: its call is of no use.
  if (donor != donor_ && call_ != nullptr) call_->TryCancel();
  donor_ = donor;
  if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { Run(); });
}

bool ReplicaCopier::WantsCopy() {
  // The shard's thread knows; this one waits for its answer.
  absl::Notification answered;
  bool wants = false;
  shard_.Ask(
      [](ServedShard& served, const auto& done) { done(served.shard().replica().WantsCopy()); },
      [&](const absl::StatusOr<bool>& now) {
        wants = now.ok() && *now;
        answered.Notify();
      });
  answered.WaitForNotification();
  return wants;
}

void ReplicaCopier::Run() {
  // The log tells at intervals why there is no copy yet.
  LongWait wait(SteadyNow(), kLogInterval);
  absl::Duration pause = kPause;
  while (true) {
    std::string donor;
    if (stop_.WaitFor(pause)) return;
    {
      absl::MutexLock lock(&mutex_);
      donor = donor_;
    }
    absl::Status status = absl::UnavailableError("not all workers push here yet");
    pause = kPause;
    if (WantsCopy()) {
      status = CopyOnce(donor);
      pause = kPauseAfterCopy;
    }
    if (status.ok()) {
      Log(LogLevel::kInfo, absl::StrCat("server: replica copied from=", donor));
      return;
    }
    if (!wait.IsDue(SteadyNow())) continue;
    Log(LogLevel::kInfo,
        absl::StrCat("server: waiting for a copy from=", donor, " why=\"", status.message(), "\""));
  }
}

absl::Status ReplicaCopier::CopyOnce(const std::string& donor) {
  const auto stub = v1::ParameterServer::NewStub(OpenChannel(donor));
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the server is stopping");
    call_ = &context;
  }
  v1::PullRequest request;
  // The job's digest and the run's key show that this is a server of the same run.
  request.mutable_caller()->set_job_digest(job_digest_);
  request.set_copies_replica(true);
  request.set_server_key(server_key_());
  const auto stream = stub->Pull(&context, request);
  const auto wanted = static_cast<size_t>(shard_.traits().slices.bytes());
  std::vector<float> values(static_cast<size_t>(shard_.traits().slices.size));
  char* const bytes = reinterpret_cast<char*>(values.data());
  v1::ChunkHeader header;
  size_t received = 0;
  for (v1::Chunk chunk; stream->Read(&chunk);) {
    if (chunk.has_header()) header = chunk.header();
    if (chunk.payload().size() > wanted - received) {
      // More than the layout holds is refused before it is stored.
      context.TryCancel();
      received = wanted + 1;
      break;
    }
    std::memcpy(bytes + received, chunk.payload().data(), chunk.payload().size());
    received += chunk.payload().size();
  }
  const absl::Status status = FromGrpc(stream->Finish());
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
  }
  if (received > wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("copy from ", donor, ": more than ", wanted, " bytes, want that many"));
  }
  TESSERA_RETURN_IF_ERROR(status);
  // Values without the table of what they contain could not be used.
  if (received < wanted || !header.has_replica() ||
      header.layout_hash() != shard_.traits().layout_hash) {
    return absl::InvalidArgumentError(absl::StrCat("copy from ", donor, ": ", received, " of ",
                                                   wanted, " bytes of layout ",
                                                   absl::Hex(header.layout_hash())));
  }
  absl::Status taken;
  absl::Notification done;
  shard_.Ask(
      [&](ServedShard& served, const auto& answer) {
        answer(served.shard().replica().TakeCopy(TableOf(header), values));
      },
      [&](absl::Status result) {
        taken = std::move(result);
        done.Notify();
      });
  done.WaitForNotification();
  return taken;
}

}  // namespace tessera

#include "deploy/cli/checkpoint_command.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/base/printable.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "deploy/cli/failed_call.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kCheckpointAnswerMax{5};
constexpr absl::Duration kAskAgain = absl::Milliseconds(50);
// The time after which the command says what the job waits for.
constexpr absl::Duration kTellAfter = absl::Seconds(5);

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kCheckpointAnswerMax);
}

int Fail(const CheckpointOptions& options, const std::string& why) {
  std::fprintf(stderr, "tessera: no checkpoint from %s: %s\n", options.address.c_str(),
               ToPrintable(why).c_str());
  return 1;
}

}  // namespace

int RequestCheckpoint(const CheckpointOptions& options) {
  if (!IsHostPort(options.address)) {
    std::fprintf(stderr, "tessera: ADDRESS: got \"%s\", want HOST:PORT\n", options.address.c_str());
    return 2;
  }
  if (const absl::Status status = UseSecurity(options.security); !status.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  const auto channel = OpenControlChannel(options.address, Role::kOperator);
  const auto admin = v1::Admin::NewStub(channel);
  const auto status_stub = v1::Status::NewStub(channel);
  v1::CheckpointReply reply;
  {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::AdminRequest request;
    request.set_reason("tessera checkpoint");
    const grpc::Status asked = admin->Checkpoint(&context, request, &reply);
    if (asked.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return Fail(options, "only server 0 writes checkpoints; ask that one");
    }
    if (!asked.ok()) {
      return TellFailedCall(absl::StrCat("no checkpoint from ", options.address), FromGrpc(asked));
    }
  }
  v1::StatusRequest wanted;
  wanted.set_recent_history(true);  // Only the checkpoint is looked at.
  bool told = options.quiet;
  for (const absl::Time begin = SteadyNow(); true;) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::JobStatus status;
    const grpc::Status got = status_stub->Get(&context, wanted, &status);
    if (!got.ok()) return Fail(options, got.error_message());
    const v1::CheckpointStatus& checkpoint = status.checkpoint();
    if (checkpoint.failed_number() >= reply.number()) return Fail(options, checkpoint.failure());
    if (checkpoint.number() >= reply.number()) {
      if (options.json) {
        std::printf("{\"number\": %" PRIu64 ", \"step\": %" PRIu64 ", \"bytes\": %" PRIu64
                    ", \"write_seconds\": %.6f}\n",
                    checkpoint.number(), checkpoint.step(), checkpoint.bytes(),
                    checkpoint.write_seconds());
      } else if (!options.quiet) {
        std::printf("step %" PRIu64 ": %" PRIu64 " bytes in %.3f s\n", checkpoint.step(),
                    checkpoint.bytes(), checkpoint.write_seconds());
      }
      return 0;
    }
    if (status.state() == "done") return Fail(options, "the job has ended");
    if (!told && SteadyNow() - begin > kTellAfter) {
      told = true;
      const std::string who = absl::StrJoin(status.waiting_for(), ", ");
      std::fprintf(stderr, "tessera: the job is %s and has not come to a checkpoint yet%s%s\n",
                   status.state().c_str(), who.empty() ? "" : "; it waits for ", who.c_str());
    }
    absl::SleepFor(kAskAgain);
  }
}

}  // namespace tessera

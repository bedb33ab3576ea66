#include "deploy/cli/end_command.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "deploy/cli/failed_call.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

// How long the answer may take, which waits until the job has kept that it is to end.
constexpr std::chrono::seconds kEndAnswerMax{10};

using EndCall = grpc::Status (v1::Admin::Stub::*)(grpc::ClientContext*, const v1::AdminRequest&,
                                                  v1::AdminReply*);

// `verb` is what the command is called, `said` what the job does from then on.
int Ask(const EndOptions& options, EndCall call, absl::string_view verb, const char* said) {
  if (!IsHostPort(options.address)) {
    std::fprintf(stderr, "tessera: ADDRESS: got \"%s\", want HOST:PORT\n", options.address.c_str());
    return 2;
  }
  if (const absl::Status status = UseSecurity(options.security); !status.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  const auto admin = v1::Admin::NewStub(OpenControlChannel(options.address, Role::kOperator));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEndAnswerMax);
  v1::AdminRequest request;
  request.set_reason(options.reason.empty() ? absl::StrCat("tessera ", verb) : options.reason);
  v1::AdminReply reply;
  const grpc::Status asked = (admin.get()->*call)(&context, request, &reply);
  const std::string what = absl::StrCat("no ", verb, " of the job at ", options.address);
  if (asked.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    std::fprintf(stderr, "tessera: %s: only server 0 ends the job; ask that one\n", what.c_str());
    return 1;
  }
  if (!asked.ok()) return TellFailedCall(what, FromGrpc(asked));
  if (!options.quiet) std::printf("%s\n", said);
  return 0;
}

}  // namespace

int RequestDrain(const EndOptions& options) {
  return Ask(options, &v1::Admin::Stub::Drain, "drain",
             "the job drains: it finishes its exchange, evaluates and ends");
}

int RequestStop(const EndOptions& options) {
  return Ask(options, &v1::Admin::Stub::Stop, "stop", "the job stops: it ends now, as failed");
}

}  // namespace tessera

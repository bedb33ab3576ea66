#include "deploy/cli/curves/history_source.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/config/named_path.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "deploy/cli/report_status.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kAnswerMax{5};

}  // namespace

absl::StatusOr<v1::JobStatus> ReadReport(const std::string& path) {
  if (const std::string reason = WhyNoFile(path); !reason.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "got \"", path, "\", want a report (tessera run --report FILE); ", path, ": ", reason));
  }
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  absl::StatusOr<v1::JobStatus> status =
      StatusOfReport(text.substr(0, text.find_last_not_of('\n') + 1));
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("got \"", path,
                   "\", want a report (tessera run --report FILE): ", status.status().message()));
}

absl::StatusOr<v1::JobStatus> AskForStatus(const std::string& address, bool recent_history) {
  const auto stub = v1::Status::NewStub(OpenControlChannel(address, Role::kViewer));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerMax);
  v1::StatusRequest request;
  request.set_recent_history(recent_history);
  v1::JobStatus status;
  const grpc::Status result = stub->Get(&context, request, &status);
  if (!result.ok()) return FromGrpc(result);
  return status;
}

bool IsAsked(const std::string& source) { return IsHostPort(source) && !WhyNoFile(source).empty(); }

}  // namespace tessera

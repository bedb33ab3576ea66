#include "common/rpc/status.h"

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/utf8.h"

namespace tessera {

static_assert(static_cast<int>(grpc::StatusCode::CANCELLED) ==
              static_cast<int>(absl::StatusCode::kCancelled));
static_assert(static_cast<int>(grpc::StatusCode::ABORTED) ==
              static_cast<int>(absl::StatusCode::kAborted));
static_assert(static_cast<int>(grpc::StatusCode::UNAVAILABLE) ==
              static_cast<int>(absl::StatusCode::kUnavailable));
static_assert(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED) ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));

namespace {

// How much of the message's beginning fits.
size_t FittingBytes(absl::string_view message) {
  size_t taken = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    const char c = message[i];
    // gRPC writes everything but printable ASCII as %XX, three bytes each, in a header whose size is limited.
    taken += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
    if (taken > kMessageHeaderBytesMax) return i;
  }
  return message.size();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status();
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      CutText(status.message(), FittingBytes(status.message())));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  std::string message = status.error_message();
  // What gRPC says of a ping without an answer is no sentence for a person, and of a service that is not there nothing.
  if (message == "keepalive watchdog timeout") {
    message = "no answer to a ping: it is down, or the link to it is, or carries too little";
  } else if (message.empty() && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    message = "another program listens there";
  }
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

}  // namespace tessera

#include "common/rpc/status.h"

#include <string>

namespace tessera {

static_assert(static_cast<int>(grpc::StatusCode::CANCELLED) ==
              static_cast<int>(absl::StatusCode::kCancelled));
static_assert(static_cast<int>(grpc::StatusCode::ABORTED) ==
              static_cast<int>(absl::StatusCode::kAborted));
static_assert(static_cast<int>(grpc::StatusCode::UNAVAILABLE) ==
              static_cast<int>(absl::StatusCode::kUnavailable));
static_assert(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED) ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status();
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
}

}  // namespace tessera

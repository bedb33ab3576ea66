// A status that can be sent: gRPC ends the process over a message of 2 GiB, and a client takes less.
#ifndef TESSERA_SERVER_CONTROL_STATUS_LIMIT_H_
#define TESSERA_SERVER_CONTROL_STATUS_LIMIT_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "proto/status.pb.h"

namespace tessera {

// What clients take of one message (common/rpc/control_channel.h), less some room for what is added on the way.
constexpr size_t kStatusBytesMax = size_t{255} << 20;

// Leaves out the lists that are longest in such a status until it fits: members and their reports, then all evaluations
// but the last one and the report's text. What was left out, in words; empty: nothing.
absl::string_view LimitStatus(size_t bytes_max, v1::JobStatus* status);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_STATUS_LIMIT_H_

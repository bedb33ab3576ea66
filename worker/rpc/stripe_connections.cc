#include "worker/rpc/stripe_connections.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/striping/striping.h"
#include "common/rpc/transport.h"
#include "common/rpc/windows.h"

namespace tessera {
namespace {

// A server that is started again is there within a second or two; a network that lets few connections through stays so.
constexpr absl::Duration kRestMin = absl::Seconds(1);
constexpr absl::Duration kRestMax = absl::Seconds(60);

}  // namespace

StripeConnections::StripeConnections(std::string server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

std::vector<grpc::GenericStub*> StripeConnections::For(int64_t bytes, absl::Time now) {
  std::vector<grpc::GenericStub*> stubs;
  // What comes in windows is held by this process, too, when it pulls.
  const int wanted = StripesFor(bytes, std::min(allowed_, CurrentStripes())) - 1;
  if (wanted == 0 || now < rests_until_) return stubs;
  while (connections_.size() < static_cast<size_t>(wanted)) {
    Connection connection;
    connection.channel = OpenChannel(address_);
    connection.stub = std::make_unique<grpc::GenericStub>(connection.channel);
    connections_.push_back(std::move(connection));
  }
  // gRPC's connection stands when the server's first frame has come, so that a call would not wait for that.
  for (const Connection& connection : connections_) {
    if (stubs.size() == static_cast<size_t>(wanted)) break;
    if (connection.channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
      stubs.push_back(connection.stub.get());
    }
  }
  if (!stubs.empty() && !std::exchange(is_told_, true)) {
    Log(LogLevel::kInfo, absl::StrCat("worker: calls go on several connections server=\"", server_,
                                      "\" connections=", 1 + stubs.size()));
  }
  return stubs;
}

void StripeConnections::OnEnd(const absl::Status& status, absl::Time now) {
  if (status.ok()) {
    rest_ = absl::ZeroDuration();
    return;
  }
  // A push and a pull that had the same connections fail together.
  if (now < rests_until_) return;
  rest_ = std::clamp(2 * rest_, kRestMin, kRestMax);
  rests_until_ = now + rest_;
  // Others are opened afterwards, as these may stand and not carry anything.
  connections_.clear();
  is_told_ = false;
  Log(LogLevel::kInfo,
      absl::StrCat("worker: calls go on one connection server=\"", server_,
                   "\" for_s=", absl::ToInt64Seconds(rest_), " why=\"", status.message(), "\""));
}

}  // namespace tessera

// What of the environment gRPC cannot do with.
#include "common/rpc/rpc_needs.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace tessera {
namespace {

TEST_CASE("a way to wait for sockets that gRPC does not have is refused", "[rpc][needs]") {
  const auto why = [](const char* strategy) {
    setenv("GRPC_POLL_STRATEGY", strategy, /*overwrite=*/1);
    const absl::Status status = CheckPollStrategy();
    unsetenv("GRPC_POLL_STRATEGY");
    return std::string(status.message());
  };
  for (const char* good : {"all", "epoll1", "poll", "epollex,poll", "epoll1,none"}) {
    CAPTURE(good);
    CHECK(why(good).empty());
  }
  for (const char* bad : {"", "none", "none,poll", "epollex", "Poll"}) {
    CHECK(why(bad) ==
          "GRPC_POLL_STRATEGY: is \"" + std::string(bad) +
              "\", by which gRPC waits for no socket, want epoll1, poll or all; unset it");
  }
  CHECK(CheckPollStrategy().ok());
}

}  // namespace
}  // namespace tessera

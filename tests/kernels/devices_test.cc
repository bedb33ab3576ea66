#include "kernels/devices.h"

#include <catch2/catch.hpp>

namespace tessera {

TEST_CASE("cpu is a backend of every build", "[devices]") {
  const auto backend = CreateBackend("cpu", 3);
  REQUIRE(backend.ok());
  CHECK((*backend)->description().rfind("cpu (3 threads, ", 0) == 0);
  CHECK((*backend)->memory().host_addressable());
}

TEST_CASE("an unknown device and a bad number of threads are refused, with what is wanted",
          "[devices]") {
  const auto unknown = CreateBackend("tpu", 1);
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(unknown.status().message()) ==
        "cluster.device: got \"tpu\", want cpu, cuda or cuda:N");
  for (const char* device : {"", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"}) {
    CHECK(CreateBackend(device, 1).status().code() == absl::StatusCode::kInvalidArgument);
  }
  for (const int threads : {0, -1, 1025}) {
    const auto backend = CreateBackend("cpu", threads);
    REQUIRE_FALSE(backend.ok());
    CHECK(backend.status().code() == absl::StatusCode::kInvalidArgument);
  }
  for (const char* device : {"cuda", "cuda:1"}) {
    CHECK(CreateBackend(device, 1).status().code() == absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace tessera

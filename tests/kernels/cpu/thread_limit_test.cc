// Run with OMP_THREAD_LIMIT=2 (BUILD.bazel), which a program cannot change once it is loaded.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <thread>

#include "kernels/devices.h"

namespace tessera {

TEST_CASE("a team that is smaller than cluster.threads is refused before it computes",
          "[threads]") {
  REQUIRE(std::getenv("OMP_THREAD_LIMIT") != nullptr);
  CHECK(CreateBackend("cpu", 1).ok());
  CHECK(CreateBackend("cpu", 2).ok());
  const absl::Status three = CreateBackend("cpu", 3).status();
  CHECK(three.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(three.message()) ==
        "cluster.threads: is 3, but OpenMP computes with 2 here; unset OMP_THREAD_LIMIT, or set "
        "cluster.threads to 2");
  // A thread that has computed nothing yet has a team of its own.
  std::thread other([] { CHECK(!CreateBackend("cpu", 3).ok()); });
  other.join();
}

}  // namespace tessera

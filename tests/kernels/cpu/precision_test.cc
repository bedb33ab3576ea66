// A CPU without bf16 arithmetic. oneDNN is told to look no further than AVX2, before it is first
// used.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "kernels/devices.h"

namespace tessera {

TEST_CASE("bf16 on a CPU without it is refused, with the reason", "[precision]") {
  REQUIRE(setenv("DNNL_MAX_CPU_ISA", "AVX2", 1) == 0);
  const auto backend = CreateBackend("cpu", 1);
  REQUIRE(backend.ok());
  const auto linear = (*backend)->linear_bf16();
  REQUIRE_FALSE(linear.ok());
  CHECK(linear.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(linear.status().message()) ==
        "train.precision: got \"bf16\", want \"f32\" on this machine; the CPU has avx2, bf16 needs "
        "avx512_core_bf16");
  CHECK((*backend)->description() == "cpu (1 thread, avx2)");
}

TEST_CASE("f32 products work without AVX-512", "[precision]") {
  const auto backend = CreateBackend("cpu", 2);
  REQUIRE(backend.ok());
  const float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, 2, 0, 1, -1};
  float y[4];
  (*backend)->linear().Forward({2, 3, 2}, x, w, nullptr, y);
  REQUIRE((*backend)->Finish().ok());
  CHECK(std::vector<float>(y, y + 4) == std::vector<float>{7, -1, 16, -1});
}

}  // namespace tessera

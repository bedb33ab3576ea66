// oneDNN may be told to compute products of f32 in bf16, by DNNL_DEFAULT_FPMATH_MODE or by whoever shares it. Which of
// them it then does depends on the CPU and the shape.
#include <catch2/catch.hpp>

#include "dnnl.h"
#include "kernels/devices.h"

namespace tessera {

TEST_CASE("products of f32 are of f32 whatever oneDNN was told", "[precision]") {
  REQUIRE(dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_bf16) == dnnl_success);
  REQUIRE(CreateBackend("cpu", 1).ok());
  dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_any;
  REQUIRE(dnnl_get_default_fpmath_mode(&mode) == dnnl_success);
  CHECK(mode == dnnl_fpmath_mode_strict);
}

}  // namespace tessera

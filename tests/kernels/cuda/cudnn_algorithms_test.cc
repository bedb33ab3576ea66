// Forward passes by cuDNN as ptx/cudnn.cc plays it: of two algorithms it refuses one when it is asked for room (below 4
// channels), or only when it is to begin (where channels are no multiple of 4). It can do all of them by the other.
#include <catch2/catch.hpp>

#include "tests/kernels/cuda/convolution_results.h"

namespace tessera {

TEST_CASE("a pass that one of cuDNN's algorithms refuses is done by the other",
          "[cuda][convolution]") {
  for (const int64_t channels : {3, 4, 5, 8}) {
    CAPTURE(channels);
    const ImagesShape shape{2, MapOf({channels, 5, 4}, {3, 2, 1, 1, 1, 1}, 3)};
    using Factors = cuda::Product::Factors;
    CudaConvolutionOptions by_products, by_cudnn;
    by_products.cudnn = false;
    by_cudnn.cudnn_if_slower = true;
    const Results want = Compute<float>(shape, Factors::kF32, by_products);
    CHECK(want.convolutions == 0);
    for (const Results& got : {Compute<float>(shape, Factors::kF32, by_cudnn),
                               Compute<float>(shape, Factors::kTf32, by_cudnn),
                               Compute<Bf16>(shape, Factors::kBf16, by_cudnn)}) {
      // Forward, two gradients of the weights and one of the inputs.
      CHECK(got.convolutions == 4);
      CHECK(got.y == want.y);
      CHECK(got.dw == want.dw);
      CHECK(got.dx == want.dx);
    }
  }
}

}  // namespace tessera

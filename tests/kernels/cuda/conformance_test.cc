// The CUDA backend passes the battery of all backends: on a GPU, and on one that the host plays.
#include "kernels/cuda/backend.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {

std::unique_ptr<Backend> BackendUnderTest(int) {
  DeviceOptions options;
  options.product_step_size_min = 0;  // Small ones show as much.
  options.cudnn_if_slower = true;     // Few of the battery's images are what it is faster at.
  auto backend = CreateCudaBackend(0, options);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return std::move(*backend);
}

std::vector<int> ThreadsUnderTest() { return {1}; }

}  // namespace tessera

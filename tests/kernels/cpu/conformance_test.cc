// The CPU backend passes the battery of all backends.
#include "kernels/devices.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {

std::unique_ptr<Backend> BackendUnderTest(int threads) {
  auto backend = CreateBackend("cpu", threads);
  REQUIRE(backend.ok());
  return std::move(*backend);
}

std::vector<int> ThreadsUnderTest() { return {1, 2}; }

}  // namespace tessera

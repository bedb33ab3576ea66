#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {

TEST_CASE("allocated memory is zeroed, aligned to 64 bytes, and holds what is copied in",
          "[memory]") {
  const auto backend = BackendUnderTest(1);
  Memory& memory = backend->memory();
  for (const int64_t bytes : {1, 63, 64, 4096, 5 << 20}) {
    for (int round = 0; round < 2; ++round) {  // The second time it is memory that was used before.
      const auto buffer = Buffer<char>::Create(memory, bytes);
      REQUIRE(buffer.ok());
      REQUIRE(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
      std::vector<char> seen(bytes, 'x');
      memory.CopyOut(buffer->data(), bytes, seen.data());
      REQUIRE(std::count(seen.begin(), seen.end(), '\0') == bytes);
      const std::vector<char> written(bytes, 'y');
      memory.CopyIn(written.data(), bytes, buffer->data());
      memory.CopyOut(buffer->data(), bytes, seen.data());
      REQUIRE(seen == written);
      memory.Zero(buffer->data(), bytes - 1);
      memory.CopyOut(buffer->data(), bytes, seen.data());
      REQUIRE(std::count(seen.begin(), seen.end(), '\0') == bytes - 1);
      REQUIRE(seen.back() == 'y');
    }
  }
}

TEST_CASE("zero bytes are a null address, and more than there is a status", "[memory]") {
  const auto backend = BackendUnderTest(1);
  const auto none = Buffer<float>::Create(backend->memory(), 0);
  REQUIRE(none.ok());
  CHECK(none->data() == nullptr);
  const auto endless = Buffer<float>::Create(backend->memory(), int64_t{1} << 55);
  REQUIRE_FALSE(endless.ok());
  CHECK(endless.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a moved buffer has one owner", "[memory]") {
  const auto backend = BackendUnderTest(1);
  auto first = Buffer<float>::Create(backend->memory(), 100);
  REQUIRE(first.ok());
  float* const address = first->data();
  Buffer<float> second = std::move(*first);
  CHECK(first->data() == nullptr);
  CHECK(second.data() == address);
  CHECK(second.size() == 100);
}

}  // namespace tessera

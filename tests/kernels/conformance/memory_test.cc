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
  const auto endless = Buffer<float>::Create(backend->memory(), int64_t{1} << 45);
  REQUIRE_FALSE(endless.ok());
  CHECK(endless.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("what is copied in may be overwritten at once, however large", "[memory]") {
  const auto backend = BackendUnderTest(1);
  for (const int64_t n : {int64_t{1}, int64_t{300000}, int64_t{3000001}}) {
    std::vector<float> values = RandomValues(n, 1);
    const std::vector<float> kept = values;
    const auto buffer = Buffer<float>::Create(backend->memory(), n);
    REQUIRE(buffer.ok());
    backend->memory().CopyIn(values.data(), buffer->bytes(), buffer->data());
    std::fill(values.begin(), values.end(), -1.0f);
    backend->memory().CopyOut(buffer->data(), buffer->bytes(), values.data());
    CHECK(values == kept);
  }
}

TEST_CASE("rows are copied between strides, and what lies between them stays", "[memory]") {
  const auto backend = BackendUnderTest(1);
  const int64_t rows = 7, from_width = 11, to_width = 13, width = 5;
  const std::vector<float> from = RandomValues(rows * from_width, 1),
                           to = RandomValues(rows * to_width, 2);
  const DeviceArray<float> dev_from(*backend, from, 1), dev_to(*backend, to, 1);
  backend->memory().CopyRows(dev_from.data() + 2, from_width * 4, rows, width * 4,
                             dev_to.data() + 3, to_width * 4);
  backend->memory().CopyRows(dev_from.data(), 4, 0, 4, dev_to.data(), 4);
  const std::vector<float> got = dev_to.Read();
  for (int64_t i = 0; i < rows * to_width; ++i) {
    const int64_t column = i % to_width - 3;
    const bool copied = column >= 0 && column < width;
    REQUIRE(got[i] == (copied ? from[i / to_width * from_width + column + 2] : to[i]));
  }
}

TEST_CASE("copies beside the kernels follow earlier kernels, and later kernels follow them",
          "[memory]") {
  const auto backend = BackendUnderTest(1);
  Memory& memory = backend->memory();
  const int64_t n = 100003;
  const std::vector<float> x = RandomValues(n, 1);
  auto host = Buffer<float>::CreateHost(memory, n), back = Buffer<float>::CreateHost(memory, n);
  auto one = Buffer<float>::Create(memory, n), two = Buffer<float>::Create(memory, n);
  REQUIRE((host.ok() && back.ok() && one.ok() && two.ok()));
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < n; ++i) host->data()[i] = x[i] + static_cast<float>(round);
    memory.Send(host->data(), host->bytes(), one->data());
    backend->activation().Relu(n, one->data(), two->data());
    memory.Fetch(two->data(), back->bytes(), back->data());
    const Backend::Moment fetched = backend->Mark();
    // Queued behind the mark, and not waited for.
    backend->activation().Relu(n, one->data(), one->data());
    REQUIRE(backend->Wait(fetched).ok());
    for (int64_t i = 0; i < n; ++i) {
      REQUIRE(back->data()[i] == std::max(host->data()[i], 0.0f));
    }
    REQUIRE(backend->Finish().ok());
    for (int64_t i = 0; i < n; ++i) host->data()[i] = -x[i];
    memory.Send(host->data(), host->bytes(), one->data());
    backend->activation().Relu(n, one->data(), two->data());
    std::vector<float> got(n);
    memory.CopyOut(two->data(), two->bytes(), got.data());
    for (int64_t i = 0; i < n; ++i) REQUIRE(got[i] == std::max(-x[i], 0.0f));
  }
  CHECK(backend->memory().available() > 0);
}

TEST_CASE(
    "either of the latest two moments may be waited for, and what is sent behind one follows it",
    "[memory]") {
  const auto backend = BackendUnderTest(1);
  Memory& memory = backend->memory();
  const int64_t n = 100003;
  const std::vector<float> x = RandomValues(n, 1);
  auto host = Buffer<float>::CreateHost(memory, n), back = Buffer<float>::CreateHost(memory, 2 * n);
  auto one = Buffer<float>::Create(memory, n), two = Buffer<float>::Create(memory, 2 * n);
  REQUIRE((host.ok() && back.ok() && one.ok() && two.ok()));
  // Round r's values are sent over those of the round before, which kernels before its mark have read.
  const auto value = [&](int64_t i, int round) { return x[i] + static_cast<float>(round); };
  Backend::Moment marked[2] = {0, 0};
  const auto check = [&](int round) {
    const int place = round % 2;
    REQUIRE(backend->Wait(marked[place]).ok());
    for (int64_t i = 0; i < n; ++i) {
      REQUIRE(back->data()[place * n + i] == std::max(value(i, round), 0.0f));
    }
  };
  for (int round = 0; round < 7; ++round) {
    const int place = round % 2;
    std::vector<float> sent(n);
    for (int64_t i = 0; i < n; ++i) sent[i] = value(i, round);
    if (round > 0) REQUIRE(backend->Wait(marked[1 - place]).ok());  // The host's bytes are free.
    std::copy(sent.begin(), sent.end(), host->data());
    memory.Send(host->data(), host->bytes(), one->data());
    backend->activation().Relu(n, one->data(), two->data() + place * n);
    memory.Fetch(two->data() + place * n, n * 4, back->data() + place * n);
    marked[place] = backend->Mark();
    if (round > 0) check(round - 1);
  }
  check(6);
  // Of two that are open the earlier one, then the later one.
  marked[0] = backend->Mark();
  marked[1] = backend->Mark();
  REQUIRE(backend->Wait(marked[0]).ok());
  REQUIRE(backend->Wait(marked[1]).ok());
  // Not waited for by the host: the kernel reads before the next values come.
  for (int64_t i = 0; i < n; ++i) host->data()[i] = -1;
  backend->activation().Relu(n, one->data(), two->data());
  backend->Mark();
  memory.Send(host->data(), host->bytes(), one->data());
  std::vector<float> got(n);
  memory.CopyOut(two->data(), n * 4, got.data());
  for (int64_t i = 0; i < n; ++i) REQUIRE(got[i] == std::max(value(i, 6), 0.0f));
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

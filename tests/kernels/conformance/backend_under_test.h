// The battery that every backend passes. A backend's test binary links it with its own
// BackendUnderTest.
#ifndef TESSERA_TESTS_KERNELS_CONFORMANCE_BACKEND_UNDER_TEST_H_
#define TESSERA_TESTS_KERNELS_CONFORMANCE_BACKEND_UNDER_TEST_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/backend.h"

namespace tessera {

// Half a unit in the last place of 1.0f: the relative error of one rounding.
constexpr double kRoundoff = 0x1p-24;

// Defined by the binary. A fresh one with `threads` host threads.
std::unique_ptr<Backend> BackendUnderTest(int threads);
// So many host threads as may make a difference.
std::vector<int> ThreadsUnderTest();

// All of `cases`, or a random Nth of them where the environment says TESSERA_BATTERY_EVERY=N, as for a machine that
// plays a GPU instruction by instruction. Each call draws others, so that a test which goes through them under several
// options meets nearly all, and a run draws what every run draws.
template <typename T>
std::vector<T> Sampled(const std::vector<T>& cases) {
  const char* text = std::getenv("TESSERA_BATTERY_EVERY");
  const unsigned every = text == nullptr ? 1 : std::max(1, std::atoi(text));
  static std::mt19937 random(1);
  std::vector<T> sample;
  for (const T& each : cases) {
    if (random() % every == 0) sample.push_back(each);
  }
  return sample;
}

// An array in the backend's memory, `shift` values behind an aligned address, between guards that
// the kernels must leave alone.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Backend& backend, const std::vector<T>& values, int64_t shift = 0)
      : backend_(backend), size_(values.size()), front_(kGuard + shift) {
    absl::StatusOr<Buffer<T>> buffer = Buffer<T>::Create(backend.memory(), size_ + front_ + kGuard);
    REQUIRE(buffer.ok());
    buffer_ = std::move(*buffer);
    std::vector<T> all(buffer_.size());
    std::memset(static_cast<void*>(all.data()), 0x5a, all.size() * sizeof(T));
    std::copy(values.begin(), values.end(), all.begin() + front_);
    backend.memory().CopyIn(all.data(), buffer_.bytes(), buffer_.data());
  }
  DeviceArray(Backend& backend, int64_t size, int64_t shift = 0)
      : DeviceArray(backend, std::vector<T>(size), shift) {}

  T* data() const { return buffer_.data() + front_; }

  // What the kernels left. Fails the test where they failed, or wrote outside.
  std::vector<T> Read() const {
    const absl::Status status = backend_.Finish();
    INFO(status);
    REQUIRE(status.ok());
    std::vector<T> all(buffer_.size());
    backend_.memory().CopyOut(buffer_.data(), buffer_.bytes(), all.data());
    const auto* bytes = reinterpret_cast<const unsigned char*>(all.data());
    const auto untouched = [&](int64_t begin, int64_t end) {
      return std::all_of(bytes + begin * sizeof(T), bytes + end * sizeof(T),
                         [](unsigned char b) { return b == 0x5a; });
    };
    REQUIRE(untouched(0, front_));
    REQUIRE(untouched(front_ + size_, buffer_.size()));
    return std::vector<T>(all.begin() + front_, all.begin() + front_ + size_);
  }

 private:
  static constexpr int64_t kGuard = 64;
  Backend& backend_;
  const int64_t size_;
  const int64_t front_;
  Buffer<T> buffer_;
};

// Normal values of the given spread around `center`, the same for the same seed.
inline std::vector<float> RandomValues(int64_t n, unsigned seed, float spread = 1,
                                       float center = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = center + spread * normal(random);
  return values;
}

// Array lengths at which loops of 4, 8, 16 or 64 lanes go wrong, and one that is worth several
// threads.
inline const std::vector<int64_t>& Sizes() {
  static const std::vector<int64_t> sizes = {0,  1,  3,  4,   15,  16,   17,
                                             63, 64, 65, 255, 257, 1000, 100003};
  return sizes;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_KERNELS_CONFORMANCE_BACKEND_UNDER_TEST_H_

// The option `threads` holds for the thread that calls, whatever OpenMP's own default is.
#include <dirent.h>
#include <omp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/devices.h"

namespace tessera {
namespace {

int TasksOfThisProcess() {
  DIR* const tasks = opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  int count = 0;
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] == '.' ? 0 : 1;
  closedir(tasks);
  return count;
}

// How many threads appear while a fresh thread runs `compute`.
template <typename F>
int ThreadsUsed(const F& compute) {
  // Those of the call before, on a busy machine, may still be about to end.
  for (int i = 0; i < 1000 && TasksOfThisProcess() > 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int used = 0;
  std::thread caller([&] {
    const int before = TasksOfThisProcess();
    compute();
    used = 1 + TasksOfThisProcess() - before;
  });
  caller.join();
  return used;
}

int ThreadsOfAProduct(int threads) {
  return ThreadsUsed([&] {
    const auto backend = CreateBackend("cpu", threads);
    REQUIRE(backend.ok());
    const std::vector<float> x(256 * 256, 1.0f);
    std::vector<float> y(256 * 256);
    (*backend)->linear().Forward({256, 256, 256}, x.data(), x.data(), nullptr, y.data());
    REQUIRE((*backend)->Finish().ok());
    CHECK(y[0] == 256);
  });
}

int ThreadsOfALoop(int threads) {
  return ThreadsUsed([&] {
    const auto backend = CreateBackend("cpu", threads);
    REQUIRE(backend.ok());
    const std::vector<float> x(1000000, 1.0f);
    std::vector<float> y(1000000);
    (*backend)->vector().Axpy(1000000, 2, x.data(), y.data());
    CHECK(y.back() == 2);
  });
}

// As computed by a fresh thread that OpenMP gives what `set` says.
template <typename F>
std::vector<float> ProductUnder(const F& set, int threads) {
  std::vector<float> y(256 * 256, -1.0f);
  std::thread caller([&] {
    set();
    const auto backend = CreateBackend("cpu", threads);
    REQUIRE(backend.ok());
    std::vector<float> x(256 * 256);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 127) / 128;
    (*backend)->linear().Forward({256, 256, 256}, x.data(), x.data(), nullptr, y.data());
    REQUIRE((*backend)->Finish().ok());
  });
  caller.join();
  return y;
}

}  // namespace

TEST_CASE("what OpenMP was told of teams changes no bit of a product", "[threads]") {
  for (const int threads : {2, 3}) {
    CAPTURE(threads);
    const std::vector<float> whole = ProductUnder([] {}, threads);
    // No team at all.
    CHECK(ProductUnder([] { omp_set_max_active_levels(0); }, threads) == whole);
    // As many as there are idle cores.
    CHECK(ProductUnder([] { omp_set_dynamic(1); }, threads) == whole);
    CHECK(ProductUnder([] { omp_set_num_threads(1); }, threads) == whole);
  }
}

TEST_CASE("a backend uses as many threads as it was given, in products and in loops", "[threads]") {
  for (const int threads : {1, 2, 3, 1}) {
    CAPTURE(threads);
    CHECK(ThreadsOfAProduct(threads) == threads);
    CHECK(ThreadsOfALoop(threads) == threads);
  }
}

}  // namespace tessera

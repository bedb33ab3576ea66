// Fibers run, park, go on where they were, and give their stacks back.
#include "deploy/simulate/fiber.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera {
namespace {

std::unique_ptr<Fiber> New(std::function<void()> body, size_t stack_bytes = Fiber::kStackBytes) {
  return *Fiber::Create(std::move(body), stack_bytes);
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// Parks at the bottom of `depth` calls, each with memory of its own.
int ParkDeep(int depth) {
  volatile char frame[512];
  std::memset(const_cast<char*>(frame), depth & 0x7f, sizeof(frame));
  if (depth == 0) {
    Fiber::Park();
    return 0;
  }
  const int below = ParkDeep(depth - 1);
  for (const volatile char& c : frame) {
    if (c != (depth & 0x7f)) return -1000000;
  }
  return below + 1;
}

TEST_CASE("a fiber runs to where it parks and goes on from there", "[fiber]") {
  std::string said;
  const auto fiber = New([&said] {
    said += "a";
    Fiber::Park();
    said += "b";
    Fiber::Park();
    said += "c";
  });
  CHECK_FALSE(fiber->started());
  fiber->Resume();
  CHECK(said == "a");
  CHECK(fiber->started());
  CHECK(Fiber::current() == nullptr);
  fiber->Resume();
  CHECK(said == "ab");
  CHECK_FALSE(fiber->ended());
  fiber->Resume();
  CHECK(said == "abc");
  CHECK(fiber->ended());
}

TEST_CASE("inside a fiber current is that fiber", "[fiber]") {
  std::vector<Fiber*> seen;
  const auto first = New([&seen] {
    seen.push_back(Fiber::current());
    Fiber::Park();
    seen.push_back(Fiber::current());
  });
  const auto second = New([&seen] { seen.push_back(Fiber::current()); });
  first->Resume();
  second->Resume();
  first->Resume();
  CHECK(seen == std::vector<Fiber*>{first.get(), second.get(), first.get()});
}

TEST_CASE("what a fiber holds on its stack is there after a park, and destroyed at the end",
          "[fiber]") {
  const auto token = std::make_shared<int>(7);
  int found = 0;
  double sum = 0;
  auto fiber = New([&, token] {
    const std::shared_ptr<int> held = token;
    const std::vector<double> numbers(1000, 0.5);
    double x = 1.25;
    for (int i = 0; i < 10; ++i) {
      Fiber::Park();
      x *= 2;
    }
    found = *held;
    for (const double number : numbers) sum += number;
    sum += x;
  });
  CHECK(token.use_count() == 2);
  fiber->Resume();
  CHECK(token.use_count() == 3);
  while (!fiber->ended()) fiber->Resume();
  CHECK(found == 7);
  CHECK(sum == 500 + 1280);
  CHECK(token.use_count() == 1);  // The body's captures went with it.
}

TEST_CASE("a fiber that parks deep in calls finds every frame as it was", "[fiber]") {
  int depth = 0;
  const auto deep = New([&depth] { depth = ParkDeep(300); });
  const auto other = New([] { ParkDeep(300); });
  deep->Resume();
  other->Resume();
  deep->Resume();
  other->Resume();
  CHECK(depth == 300);
}

TEST_CASE("a fiber that never began needs no end", "[fiber]") {
  bool ran = false;
  New([&ran] { ran = true; }).reset();
  CHECK_FALSE(ran);
}

TEST_CASE("formatted output, which needs alignment and much stack, works in a fiber", "[fiber]") {
  char text[64];
  const auto fiber = New([&text] { std::snprintf(text, sizeof(text), "%.17g %s", 0.1, "x"); });
  fiber->Resume();
  CHECK(std::string(text) == "0.10000000000000001 x");
}

TEST_CASE("a stack larger than the address space is refused", "[fiber]") {
  const auto fiber = Fiber::Create([] {}, size_t{1} << 60);
  CHECK(fiber.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("ten thousand fibers take turns on little memory", "[fiber]") {
  constexpr int kFibers = 10000;
  const int64_t before = ResidentBytes();
  std::vector<std::unique_ptr<Fiber>> fibers;
  int64_t sum = 0;
  for (int i = 0; i < kFibers; ++i) {
    fibers.push_back(New([&sum, i] {
      for (int turn = 0; turn < 3; ++turn) {
        sum += i;
        Fiber::Park();
      }
    }));
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto& fiber : fibers) fiber->Resume();
  }
  CHECK(sum == int64_t{3} * kFibers * (kFibers - 1) / 2);
  // Two pages each and the objects; the stacks' 2.5 GiB are address space only.
  CHECK(ResidentBytes() - before < int64_t{160} << 20);
  for (const auto& fiber : fibers) fiber->Resume();
  for (const auto& fiber : fibers) REQUIRE(fiber->ended());
  CHECK(ResidentBytes() - before < int64_t{60} << 20);
}

}  // namespace
}  // namespace tessera

// Processes wake by ticket, crash and are ended.
#include "deploy/simulate/simulated_process.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

namespace tessera {
namespace {

std::unique_ptr<SimulatedProcess> New(std::function<void()> body) {
  return *SimulatedProcess::Create(std::move(body), Fiber::kStackBytes);
}

TEST_CASE("only the ticket of the wait under way ends it", "[process]") {
  std::unique_ptr<SimulatedProcess> process;
  std::string said;
  process = New([&] {
    said += process->Wait() ? "a" : "-";
    said += process->Wait() ? "b" : "-";
  });
  process->Start();
  process->Wake(2);
  CHECK(said.empty());
  process->Wake(1);
  CHECK(said == "a");
  process->Wake(1);
  CHECK(said == "a");
  process->Wake(2);
  CHECK(said == "ab");
  CHECK(process->ended());
}

TEST_CASE("a process that has crashed does not wake, and is unwound at its end", "[process]") {
  std::unique_ptr<SimulatedProcess> process;
  std::string said;
  process = New([&] {
    for (int i = 0; i < 3; ++i) said += process->Wait() ? "a" : "-";
  });
  process->Start();
  process->Crash();
  process->Wake(1);
  CHECK(said.empty());
  // Through the pointer, which the body still uses.
  process->~SimulatedProcess();
  CHECK(said == "---");
  ::operator delete(static_cast<void*>(process.release()));
}

TEST_CASE("an interrupt ends interruptible waits, now and later, and no others", "[process]") {
  std::unique_ptr<SimulatedProcess> process;
  std::string said;
  process = New([&] {
    said += process->WaitInterruptibly() ? "a" : "-";
    said += process->WaitInterruptibly() ? "b" : "-";
    said += process->Wait() ? "c" : "-";
  });
  process->Start();
  process->Interrupt();
  CHECK(said == "--");
  process->Interrupt();
  CHECK(said == "--");
  process->Wake(3);
  CHECK(said == "--c");
}

}  // namespace
}  // namespace tessera

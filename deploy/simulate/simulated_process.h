// A simulated process: code on a fiber that waits for events.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_PROCESS_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "deploy/simulate/fiber.h"

namespace tessera {

// Every wait has a ticket, and only a Wake with that ticket ends it, so that an event that comes
// late, or after a crash, does nothing.
//
//   const uint64_t ticket = process.Ticket();     inside
//   events.After(t, [=] { process.Wake(ticket); });
//   if (!process.Wait()) return cancelled;
class SimulatedProcess {
 public:
  // Codes as Fiber::Create.
  static absl::StatusOr<std::unique_ptr<SimulatedProcess>> Create(std::function<void()> body,
                                                                  size_t stack_bytes);
  // Lets a body that has not ended run to its end, with all its waits ended at once.
  ~SimulatedProcess();

  // Runs the body until its first wait.
  void Start() { fiber_->Resume(); }

  // --- inside the body ---
  // Of the next wait.
  uint64_t Ticket() const { return ticket_ + 1; }
  // Waits until Wake with the present ticket. False: the process is to end; leave.
  bool Wait() { return WaitFor(/*interruptible=*/false); }
  // Waits like Wait, and returns false also after Interrupt.
  bool WaitInterruptibly() { return WaitFor(/*interruptible=*/true); }

  // --- outside ---
  void Wake(uint64_t ticket);
  // Ends the interruptible wait under way, and all to come.
  void Interrupt();
  // The process stops where it is: nothing wakes it any more.
  void Crash() { crashed_ = true; }

  bool crashed() const { return crashed_; }
  bool ended() const { return fiber_->ended(); }

 private:
  SimulatedProcess() = default;
  bool WaitFor(bool interruptible);

  std::unique_ptr<Fiber> fiber_;
  uint64_t ticket_ = 0;
  bool waiting_ = false;
  bool interruptible_ = false;
  bool interrupted_ = false;
  bool crashed_ = false;
  bool ending_ = false;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_PROCESS_H_

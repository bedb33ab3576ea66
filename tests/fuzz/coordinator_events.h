// A coordinator under any sequence of messages and delays, between servers and hosts that answer as they should, or
// not at all, or anything.
//
// A message is made of the input's bytes, and some of its fields are then put right by choice.
#ifndef TESSERA_TESTS_FUZZ_COORDINATOR_EVENTS_H_
#define TESSERA_TESTS_FUZZ_COORDINATOR_EVENTS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/control/coordinator.h"
#include "server/control/state_times.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_job.h"

namespace tessera {

// The name of its clock, which all processes have.
constexpr char kSteadyClock[] = "steady";

class CoordinatorEvents {
 public:
  CoordinatorEvents(const FuzzJob& job, FuzzInput* input, std::unique_ptr<Coordinator> coordinator,
                    absl::Time now)
      : job_(job), in_(*input), now_(now), coordinator_(std::move(coordinator)) {}

  // All servers attached, and hosts where the job has standbys; both workers admitted.
  void Begin();
  // (event(1) choices)*, `most` at most.
  void Some(int most);
  // So, and then the end: whatever it was, the job can still be asked about and be ended.
  void Run();
  // Goes on as another process does, from what was kept. What is kept can be read, and is the same again.
  void Restart();

  const Coordinator& coordinator() const { return *coordinator_; }
  absl::Time now() const { return now_; }

 private:
  struct Server {
    v1::ServerHello hello;
    bool attached = false;
    std::deque<v1::PlanMessage> inbox;
  };
  struct Host {
    v1::HostHello hello;
    bool attached = false;
    v1::HostOrder order;  // the last one
  };

  template <typename Message>
  Message Raw() {
    Message message;
    const absl::string_view piece = in_.Piece();
    // What does not parse never reaches a handler.
    if (!message.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) message.Clear();
    return message;
  }
  uint64_t Member() { return in_.Below(6); }
  bool has_standbys() const { return job_.facts.standbys; }

  void PutRight(v1::Progress* progress);
  void Attach(uint64_t rank, bool right);
  void Join(bool right);
  void StepServer(uint64_t rank, Server* server);
  void AttachHost(uint32_t rank, bool right);
  void DetachHost(uint32_t rank);
  void StepHost(uint32_t rank);
  void SayOfHost(uint32_t rank);
  void CheckOwners();
  void CheckStatus();
  void Collect();
  void Evaluate();
  void One();
  void OneOfHosts(uint64_t event);

  const FuzzJob& job_;
  FuzzInput& in_;
  absl::Time now_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<uint64_t, Server> servers_;
  std::map<uint32_t, Host> hosts_;
  std::deque<DiskTask> tasks_;
  v1::EvaluateReply last_reply_;
  uint64_t steps_ = 0;
  uint64_t lives_ = 0;
  std::vector<uint64_t> terms_;  // of shards, so far
};

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_COORDINATOR_EVENTS_H_

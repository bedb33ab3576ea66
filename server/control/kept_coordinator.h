// A coordinator whose state is kept, so that another process can go on from it: nothing is told before the
// state that it follows from is kept.
//
//   event     something happens to the coordinator; Collect queues what it wants sent, with the changes that
//             this follows from (Coordinator::changes)
//   write     State is written by whoever has the store. What happens meanwhile is written together, next
//   OnKept    Release gives what follows from no more than was written, in order
//
// Where a write takes long and the store may lag, nothing waits until it has caught up (SetLate). Words then
// say what they follow from (CoordinatorWord.changes), to the servers before anybody else: whoever goes on from
// an earlier state hears it from them, and gives the job up (CheckHello).
#ifndef TESSERA_SERVER_CONTROL_KEPT_COORDINATOR_H_
#define TESSERA_SERVER_CONTROL_KEPT_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "proto/replication.pb.h"
#include "server/control/coordinator.h"
#include "server/control/state_times.h"

namespace tessera {

// What a server or a host says with its hello that it has heard from the coordinator of `term`.
struct HelloClaim {
  uint64_t rank = 0;
  uint64_t run = 0;  // 0: it has heard nothing
  uint64_t term = 0;
  uint64_t changes = 0;
  uint64_t server_key = 0;
};

// `Hello` is v1::ServerHello or v1::HostHello.
template <typename Hello>
HelloClaim ClaimOf(const Hello& hello) {
  return {hello.rank(), hello.run(), hello.term(), hello.changes(), hello.server_key()};
}

// One process's tenure as the coordinator. Pure: no I/O, no clock, no lock.
class KeptCoordinator {
 public:
  // In `word`'s run and term, going on from a state of `word`'s changes. Without `is_kept` it is kept nowhere,
  // and all may be told at once.
  KeptCoordinator(std::unique_ptr<Coordinator> coordinator, const v1::CoordinatorWord& word,
                  bool is_kept);

  Coordinator& coordinator() { return *coordinator_; }
  const Coordinator& coordinator() const { return *coordinator_; }
  // What every answer to a server or a worker begins with.
  v1::CoordinatorWord Word() const;

  // --- what is kept ---

  // Over all tenures; grows with every one.
  uint64_t changes() const { return begun_at_ + 1 + coordinator_->changes(); }
  // There is something to write, before anybody is told.
  bool IsAhead() const { return is_kept_ && changes() != kept_; }
  v1::CoordinatorState State(const StateMoment& now) const;
  // A state of so many changes was written, in a time that nobody minds or not.
  void OnKept(uint64_t changes, bool in_time);
  // A write takes long: nothing waits for it.
  void SetLate() { is_late_ = true; }
  bool is_late() const { return is_late_; }

  // --- what is told ---

  bool MayBeTold(uint64_t changes) const { return !is_kept_ || is_late_ || changes <= kept_; }
  struct Batch {
    uint64_t changes = 0;
    uint64_t event = 0;
    std::vector<Outgoing> outbox;
    std::vector<HostOutgoing> host_outbox;
    std::vector<DiskTask> tasks;
    std::vector<Coordinator::EvaluateAnswer> replies;

    bool is_empty() const {
      return outbox.empty() && host_outbox.empty() && tasks.empty() && replies.empty();
    }
  };
  // After every event. Returns the changes that its result follows from. An answer to a member takes the place of one
  // that waits to be told to it: it has asked again, and however often it does one waits.
  uint64_t Collect();
  // Events that were collected. A reply of a batch is for a call that came with the batch's event or before: one
  // that came later, in its place, is answered by itself.
  uint64_t events() const { return events_; }
  // What may be told by now, in order.
  struct Told {
    // For all servers, before anything else: it is not kept what the rest follows from.
    std::optional<v1::CoordinatorWord> ahead;
    std::deque<Batch> batches;
  };
  Told Release();

  // The server or the host has connected anew, or another process has in its place: what waits to be told to
  // its predecessor is none of its. It is told the state of things.
  void DropFor(ShardId server);
  void DropForHost(uint32_t host);

  // Whether a server or a host that says `hello` may be answered: it has this job, and what it says that it was told
  // is no more than this coordinator knows of. Anybody may call, and a claim can end the job: it is believed only of
  // whoever repeats the run's number for servers (CoordinatorWord.server_key), which is kept before anybody hears it
  // and is told to no worker.
  //   kUnavailable         it has heard of a later coordinator than this one
  //   kInvalidArgument     it has another job or layout; or it says that it was told something, and does not know the
  //                        run or its server_key
  //   kFailedPrecondition  the job keeps no standbys and it is a host; or it was told what this one does not know of:
  //                        the job is given up
  absl::Status CheckHello(const v1::ServerHello& hello, absl::Time now);
  absl::Status CheckHello(const v1::HostHello& hello, absl::Time now);

 private:
  absl::Status CheckClaim(const HelloClaim& claim, absl::Time now);
  void DropReplyTo(MemberId member);

  const std::unique_ptr<Coordinator> coordinator_;
  const v1::CoordinatorWord word_;
  const bool is_kept_;
  const uint64_t begun_at_;  // changes of the state that it goes on from
  uint64_t kept_ = 0;        // changes of the state that was written last
  uint64_t told_ = 0;        // changes that servers have heard of while it is late
  bool is_late_ = false;
  uint64_t events_ = 0;
  std::deque<Batch> pending_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_KEPT_COORDINATOR_H_

// What has happened in a job, for people: typed, numbered, and so many events at most.
#ifndef TESSERA_SERVER_CONTROL_EVENT_LOG_H_
#define TESSERA_SERVER_CONTROL_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"

namespace tessera {

// The most events that are kept; the oldest are dropped.
constexpr size_t kEventsKept = 1000;
// The most that a status, and one reply of Status.Events, has.
constexpr size_t kEventsInStatus = 20;
constexpr size_t kEventsInReply = 100;
// The most bytes of an event's words; longer ones end in "...".
constexpr size_t kEventWordsMax = 240;

// The kinds of JobEvent.kind (proto/status.proto), which event_log.cc has the words of.
enum class EventKind {
  kJoined,
  kAdmitted,
  kLeft,
  kLost,
  kAttached,
  kDisconnected,
  kReturned,
  kServerLeft,
  kServerLost,
  kTookOver,
  kBegan,
  kEvaluated,
  kDrain,
  kEnded,
  kCheckpoint,
  kCheckpointFailed,
  kWentBack,
  kRefused,
  kCoordinatorMoved,
};
constexpr int kEventKinds = static_cast<int>(EventKind::kCoordinatorMoved) + 1;

// The kind as JobEvent.kind has it.
absl::string_view NameOf(EventKind kind);

class EventLog {
 public:
  // `seconds` is JobEvent's. Text that is no UTF-8 is made such.
  void Add(EventKind kind, double seconds, absl::string_view who, absl::string_view words);

  // Oldest first; numbers grow by one.
  const std::deque<v1::JobEvent>& events() const { return events_; }
  // The number of the newest; 0: there was none.
  uint64_t count() const { return count_; }

  // The last few, into a job's status.
  void Fill(v1::JobStatus* status) const;
  // Those behind number `after`, kEventsInReply at most.
  v1::EventsReply After(uint64_t after) const;

  // Grows with every event: who goes on in the coordinator's place is to tell of it, too.
  uint64_t changes() const { return changes_; }
  void Save(v1::CoordinatorState* state) const;
  //   kInvalidArgument  there are too many, or their numbers have a gap
  absl::Status Load(const v1::CoordinatorState& state);

 private:
  std::deque<v1::JobEvent> events_;
  uint64_t count_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_EVENT_LOG_H_

// What a shard with a standby may say, and when: nobody is told of what the standby has not got.
//
//   alone      all is said at once
//   copying    the standby gets an image and what follows; all is said at once
//   closing    it has the image: what is said from now on waits for it. What was said before is still on
//              its way
//   in sync    it has all that was ever said
//
// A standby that is lost holds everything up until another, or none, is set: only the coordinator may decide that the
// shard goes on without, as it may have decided that the standby takes over. A leader that ends before refuses it.
#ifndef TESSERA_SERVER_SHARD_LOG_STANDBY_GATE_H_
#define TESSERA_SERVER_SHARD_LOG_STANDBY_GATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/shard/log/log_sink.h"
#include "server/shard/log/shard_recorder.h"
#include "server/shard/shard.h"

namespace tessera {

// The shard's thread.
class StandbyGate {
 public:
  explicit StandbyGate(Shard* shard) { Watch(shard); }
  // Another shard has taken the first one's place: a standby of that is of no use.
  void Watch(Shard* shard);

  // --- the standby ---

  // Has events go to `sink` from now on, or to nobody where that is nullptr. What waited for another sink waits no
  // more.
  void SetStandby(std::shared_ptr<LogSink> sink);
  // The standby has all events up to `position`. Of another sink than the present one: no effect.
  void OnAcknowledged(const LogSink* from, uint64_t position);

  // --- events, in the order in which they happen ---

  bool records() const { return begun_; }
  bool records_pushes() const { return begun_ && !combines_; }
  void Append(ShardEvent event);
  // To be called after every event, and after every piece of the shard's work.
  void Settle();

  // --- answers ---

  // Calls `answer` once the standby has all that has happened so far, or with Abdicate's reason.
  void Say(std::function<void(absl::Status)> answer);
  // Like Say, for a reply to `member`, whose last exchange is `after`. Where pushes are combined and the
  // acknowledgement of that exchange's push is still pending, the reply is sent at once: the member does nothing with
  // the values before the acknowledgement arrives, and reads again if its leader is lost before. Values are on their
  // way meanwhile.
  void SayTo(MemberId member, Exchange after, std::function<void(absl::Status)> answer);
  // Acknowledges a push that was accepted: once it cannot be lost.
  void SayAccepted(MemberId member, Exchange exchange, std::function<void(absl::Status)> answer);
  // Fails acknowledgements of members that are none any more.
  void OnMembers();
  // All that waits is answered with `why`, or dropped where that is all it can be.
  void Refuse(const absl::Status& why);
  // The standby may lead by now: from now on all that it has yet to get is refused with `why`.
  void Abdicate(const absl::Status& why);

 private:
  enum class State { kAlone, kCopying, kClosing, kInSync };
  struct Waiting {
    uint64_t position = 0;
    std::function<void(absl::Status)> answer;
  };
  struct WaitingPush {
    MemberId member;
    Exchange exchange;
    std::function<void(absl::Status)> answer;
  };

  bool waits() const { return state_ == State::kClosing || state_ == State::kInSync; }
  void Detach();
  void TryBegin();
  void TryFinish();
  void Release();

  Shard* shard_ = nullptr;
  std::optional<ShardRecorder> recorder_;  // of that shard
  bool combines_ = false;
  State state_ = State::kAlone;
  std::shared_ptr<LogSink> sink_;
  bool begun_ = false;     // events go to sink_
  uint64_t position_ = 0;  // of the last event
  uint64_t acknowledged_ = 0;
  uint64_t image_position_ = 0;  // all that was there when it began
  Exchange said_early_;          // the last exchange of which a push was acknowledged at once
  bool early_is_over_ = false;
  uint64_t early_position_ = 0;  // kClosing: all that was said early
  absl::Status abdicated_;       // not OK: why
  std::deque<Waiting> waiting_;
  std::vector<WaitingPush> pushes_;  // of updates that are not committed
  std::map<MemberId, Exchange>
      unsaid_;  // pushes that are not acknowledged, where they are combined
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LOG_STANDBY_GATE_H_

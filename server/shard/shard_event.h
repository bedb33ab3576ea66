// What changes a shard, as values: who follows a shard applies the same events in the same order to one of
// its own, and has the same bits.
//
// A shard is a function of its events, so that nothing else need be said of it. Where all members make the
// same exchange together and pushes of all entries are summed, the pushes themselves are left out: of those there are
// the folds, and of the update its sum (ShardState::CombinesPushes).
#ifndef TESSERA_SERVER_SHARD_SHARD_EVENT_H_
#define TESSERA_SERVER_SHARD_SHARD_EVENT_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "common/consistency/plan.h"
#include "common/consistency/policy.h"
#include "server/core/core_words.h"
#include "server/shard/checkpoint_mark.h"
#include "server/shard/forms/cores_image.h"
#include "server/shard/received_push.h"
#include "server/shard/shard_counters.h"

namespace tessera {

// A push that Accept took.
struct PushEvent {
  ReceivedPush push;
};

// Advance did something at this time.
struct AdvanceEvent {
  absl::Time now;
};

// A push was folded whose values are in the sum of the commit to come.
struct FoldEvent {
  MemberId member;
  Exchange exchange;
  Version base;
  uint64_t examples = 0;
  absl::Time time;
};

// The update of the folds since the last commit was applied.
struct CommitEvent {
  absl::Time time;
  Payload sum;  // f32, all entries
};

struct PlanEvent {
  Plan plan;
};

// A member that was removed, and the last exchange of it that is, or will be, in the parameters.
struct RemovedMember {
  MemberId member;
  Exchange last_exchange;
};

struct ProposeEvent {
  uint64_t proposal = 0;
  Exchange first;
};

struct WithdrawEvent {
  uint64_t proposal = 0;
};

struct RestEvent {
  MemberId member;
  Exchange after;
  IdleNotice word;
};

struct CoreQuestionEvent {
  CoreQuestion question;
};

// A checkpoint's copy was made.
struct CopiedEvent {
  CopyOrder order;
};

// All of a shard at a moment when no update is half collected, but for pushes that are staged.
struct ImageEvent {
  struct Member {
    MemberId member;
    Exchange folded;
    std::optional<Exchange> rests_after;
    uint64_t rest_number = 0;
  };
  Plan plan;
  std::vector<Member> members;
  PolicyState policy;
  std::vector<ProposeEvent> proposals;
  ShardCounters counters;
  Exchange whole_from;  // ExchangeForms; 0: not known
  CopyOrder copied;
  std::vector<RemovedMember> removed;
  std::optional<CoresImage> cores;  // where exchanges are of a core
  Payload values;                   // f32, and behind them the rule's states, and what `cores` says
};

using ShardEvent =
    std::variant<PushEvent, AdvanceEvent, FoldEvent, CommitEvent, PlanEvent, ProposeEvent,
                 WithdrawEvent, RestEvent, CoreQuestionEvent, CopiedEvent, ImageEvent>;

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_EVENT_H_

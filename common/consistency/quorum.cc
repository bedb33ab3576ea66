#include "common/consistency/quorum.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/consistency/adaptive_grace.h"
#include "common/consistency/example_mean.h"

namespace tessera {
namespace {

// By how much longer than the quorum's members those may take that are waited for. A quarter of a round's time is less
// than their pushes bring; beside training nobody waits for half of it, and the other half is left for the exchange.
constexpr double kGraceShare = 0.25;
constexpr double kGraceShareBeside = 0.5;

class Quorum final : public ConsistencyPolicy {
 public:
  explicit Quorum(const QuorumOptions& options)
      : pushes_(options.pushes),
        grace_(options.grace),
        beside_(options.beside),
        mean_(options.squared_examples) {
    TESSERA_CHECK(pushes_ >= 1 && grace_ >= absl::ZeroDuration());
    if (options.adaptive_grace) {
      adaptive_.emplace(pushes_, grace_, options.beside ? kGraceShareBeside : kGraceShare);
    }
  }

  void SetMembers(const Plan& plan) override {
    const auto before = std::exchange(members_, {});
    // Members that go on from a checkpoint have begun: the first round waits for all of them, as the one that was
    // open then did, and no push of theirs is early.
    if (!has_begun_) {
      for (const PlanMember& m : plan.members) {
        // Only the first plan moves the round: later members join the rounds that are running.
        collecting_ = std::max(collecting_, m.first_exchange);
      }
      has_begun_ = !plan.members.empty();
    }
    for (const PlanMember& m : plan.members) {
      Member member;
      member.first = m.first_exchange;
      if (const auto known = before.find(m.member); known != before.end()) member = known->second;
      members_[m.member] = member;
    }
    if (adaptive_) adaptive_->SetMembers(plan);
    Count();
  }

  std::optional<MemberId> NextInOrder() const override { return std::nullopt; }

  Verdict OnPush(const PushFacts& push) override {
    const auto found = members_.find(push.member);
    TESSERA_CHECK(found != members_.end());
    Member& member = found->second;
    SetResting(push.member, false);
    // A push before the member's first round makes it one of those that rounds wait for.
    if (!Begun(member)) {
      later_.erase({member.first, push.member});
      ++expected_;
      ++missing_;
    }
    highest_ = std::max(highest_, push.exchange);
    if (adaptive_) {
      adaptive_->OnPush(push.member, beside_ || push.exchange < collecting_, push.time);
    }
    // Two pushes of a member in one round both count into the mean, but it is one of the quorum only once.
    if (!InRound(member)) {
      member.round = round_;
      --missing_;
      if (++members_in_ == pushes_) OnQuorum(push.time);
      SetOpenUntil();
    }
    Verdict verdict;
    verdict.weight = mean_.Add(push.examples);
    verdict.commit = Closes(push.time);
    if (verdict.commit) verdict.commit_scale = Close(push.time);
    return verdict;
  }

  std::optional<float> CommitDue(absl::Time now) override {
    // Nothing is committed while no push is in the round: an update of nothing would still raise the version.
    if (members_in_ == 0 || !Closes(now)) return std::nullopt;
    return Close(now);
  }

  std::optional<absl::Time> Deadline() const override {
    if (members_in_ < pushes_ || open_until_ == absl::InfiniteFuture()) return std::nullopt;
    return open_until_;
  }

  void SetResting(MemberId id, bool resting) override {
    const auto found = members_.find(id);
    if (found == members_.end() || found->second.resting == resting) return;
    Member& member = found->second;
    const bool was_missing = Begun(member) && Missing(member);
    member.resting = resting;
    if (adaptive_ && resting) adaptive_->OnRest(id);
    if (!Begun(member)) return;
    expected_ += resting ? -1 : 1;
    missing_ += Missing(member) - was_missing;
    SetOpenUntil();
  }

  // The round being collected may close any moment.
  Exchange FirstExchange(Exchange wanted) const override {
    return std::max(wanted, collecting_.Next());
  }

  bool MayRead(MemberId id, Exchange after) const override {
    if (after < collecting_) return true;
    // A member that has never pushed has no round to wait for: it reads what there is.
    const auto found = members_.find(id);
    return found != members_.end() && found->second.round == 0;
  }

  Exchange Collecting() const override { return Exchange(0); }

  std::vector<MemberId> WaitsFor() const override {
    std::vector<MemberId> missing;
    if (members_in_ == 0) return missing;
    for (const auto& [id, member] : members_) {
      if (Begun(member) && Missing(member)) missing.push_back(id);
    }
    std::sort(missing.begin(), missing.end());
    return missing;
  }

  // Without an open round nobody waits, and no push was as far as the next one.
  PolicyState State() override {
    PolicyState state{collecting_, {static_cast<uint64_t>(has_begun_)}, {}};
    if (adaptive_) adaptive_->Save(&state);
    return state;
  }
  void SetState(const PolicyState& state) override {
    if (state.counts.size() != 1) return;
    if (adaptive_) adaptive_->Load(state);
    collecting_ = state.next;
    has_begun_ = state.counts[0] != 0;
    Count();
  }

 private:
  struct Member {
    Exchange first{1};
    bool resting = false;
    // The last round with a push of the member; 0: none yet.
    uint64_t round = 0;
  };

  // Counts who has begun, and whose pushes the open round waits for.
  void Count() {
    later_.clear();
    missing_ = 0;
    expected_ = 0;
    for (const auto& [id, member] : members_) {
      if (Begun(member)) {
        expected_ += !member.resting;
        missing_ += Missing(member);
      } else {
        later_.insert({member.first, id});
      }
    }
    SetOpenUntil();
  }

  void OnQuorum(absl::Time now) {
    enough_since_ = now;
    if (adaptive_) adaptive_->OnQuorum(now);
  }

  // Works out how long a round that has its quorum waits for those that are missing now.
  void SetOpenUntil() {
    if (members_in_ < pushes_) return;
    if (!adaptive_) {
      open_until_ = enough_since_ + grace_;
      return;
    }
    open_until_ = enough_since_;
    for (const auto& [id, member] : members_) {
      if (!Begun(member) || !Missing(member)) continue;
      open_until_ = std::max(open_until_, adaptive_->WaitsUntil(id));
    }
  }

  // Whether the member's first round has come, or it has pushed before that.
  bool Begun(const Member& m) const { return m.first <= collecting_ || m.round != 0; }
  bool InRound(const Member& m) const { return m.round == round_; }
  // Whether the round lacks a push of this member, which has begun.
  bool Missing(const Member& m) const { return !m.resting && !InRound(m); }

  bool Closes(absl::Time now) const {
    // The quorum is complete and its grace over, or nobody is missing, which also covers fewer members than the quorum.
    return missing_ == 0 || (members_in_ >= pushes_ && now >= open_until_);
  }

  float Close(absl::Time now) {
    if (adaptive_) adaptive_->OnClose(now);
    // A member that began with a later exchange may be ahead of the rounds, where others that were
    // promised the ones between have gone.
    collecting_ = std::max(collecting_, highest_).Next();
    // A new round begins without members; those whose first exchange it is are expected from here on.
    ++round_;
    members_in_ = 0;
    while (!later_.empty() && later_.begin()->first <= collecting_) {
      expected_ += !members_[later_.begin()->second].resting;
      later_.erase(later_.begin());
    }
    missing_ = expected_;
    return mean_.Finish();
  }

  const int64_t pushes_;
  const absl::Duration grace_;
  const bool beside_;
  std::optional<AdaptiveGrace> adaptive_;
  absl::flat_hash_map<MemberId, Member> members_;
  // Members that have not begun.
  std::set<std::pair<Exchange, MemberId>> later_;
  // Counts this shard's rounds from 1; collecting_ is the exchange that the open one is for.
  uint64_t round_ = 1;
  Exchange collecting_{1};
  bool has_begun_ = false;  // there has been a plan with members
  Exchange highest_;        // exchange of all pushes; < collecting_ where none is in the open round
  int64_t members_in_ = 0;  // with a push in the open round, also removed ones
  int64_t expected_ = 0;    // have begun and are awake
  int64_t missing_ = 0;     // of those, without a push in the open round
  absl::Time enough_since_;  // when members_in_ became pushes_
  absl::Time open_until_;    // where they are so many
  ExampleMean mean_;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeQuorum(const QuorumOptions& options) {
  return std::make_unique<Quorum>(options);
}

}  // namespace tessera

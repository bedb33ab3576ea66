#include "tests/common/consistency/schedule.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

class Schedule {
 public:
  Schedule(uint64_t seed, const ScheduleOptions& options, ConsistencyPolicy* one,
           ConsistencyPolicy* other)
      : options_(options), one_(*one), other_(*other), random_(seed) {}

  std::string Run() {
    const uint64_t first_members = 1 + Below(options_.members_max);
    const uint64_t spread = options_.checkpoints && Below(2) == 0 ? 5 : 1;
    for (uint64_t i = 0; i < first_members; ++i) Add(Exchange(1 + Below(spread)));
    SetPlan();
    for (int move = 0; move < options_.moves && difference_.empty(); ++move) {
      Move();
      if (Below(10) < 7) {
        Settle();
        CheckProgress();
      }
      if (options_.all_answers) CompareAnswers();
    }
    return difference_;
  }

 private:
  struct Member {
    MemberId id;
    Exchange first;
    Exchange last;  // pushed
    bool resting = false;
  };

  uint64_t Below(uint64_t end) { return random_() % end; }

  void Differ(absl::string_view what) {
    if (difference_.empty()) difference_ = absl::StrCat("after", log_, ": ", what);
  }

  void Move() {
    const uint64_t kind = Below(100);
    if (kind < 62) {
      Push();
    } else if (kind < 74) {
      if (options_.rests) Rest();
    } else if (kind < 80) {
      Remove();
    } else if (kind < 88) {
      if (options_.joins) Join();
    } else {
      const uint64_t seconds = 1 + Below(6);
      now_ += absl::Seconds(seconds);
      absl::StrAppend(&log_, " +", seconds, "s");
    }
  }

  bool MayRead(const Member& m) const { return one_.MayRead(m.id, m.last); }

  void Push() {
    std::vector<Member*> able;
    const std::optional<MemberId> next = one_.NextInOrder();
    for (Member& m : members_) {
      if (next.has_value() ? m.id == *next : MayRead(m) && (!m.resting || Below(5) == 0)) {
        able.push_back(&m);
      }
    }
    if (able.empty()) return;
    Member& m = *able[Below(able.size())];
    m.last = m.last.Next();
    m.resting = false;
    constexpr uint64_t kExamples[] = {0, 4, 8, 16, 64};
    const uint64_t late = std::min(version_, Below(5));
    const PushFacts push{
        m.id, m.last, Version(version_ - late), Version(version_), kExamples[Below(5)], now_};
    absl::StrAppend(&log_, " push(", m.id.value(), ", ", m.last.value(), ")");
    const Verdict a = one_.OnPush(push);
    const Verdict b = other_.OnPush(push);
    if (a.weight != b.weight) Differ(absl::StrCat("weights ", a.weight, " and ", b.weight));
    if (a.commit != b.commit) Differ(absl::StrCat("commit ", a.commit, " and ", b.commit));
    if (a.commit_scale != b.commit_scale) {
      Differ(absl::StrCat("scales ", a.commit_scale, " and ", b.commit_scale));
    }
    version_ += a.commit;
  }

  void Rest() {
    if (members_.empty()) return;
    Member& m = members_[Below(members_.size())];
    // One that waits for its last read wakes only after it.
    if (m.resting && !MayRead(m)) return;
    m.resting = !m.resting;
    absl::StrAppend(&log_, m.resting ? " rest(" : " wake(", m.id.value(), ")");
    one_.SetResting(m.id, m.resting);
    other_.SetResting(m.id, m.resting);
  }

  void Remove() {
    if (members_.empty() || Below(members_.size() + 1) == 0) return;
    const auto gone = members_.begin() + Below(members_.size());
    absl::StrAppend(&log_, " remove(", gone->id.value(), ")");
    members_.erase(gone);
    SetPlan();
  }

  void Join() {
    if (members_.size() == options_.members_max) return;
    const Exchange wanted(1 + Below(4));
    const Exchange first = one_.FirstExchange(wanted);
    if (first != other_.FirstExchange(wanted)) Differ("first exchanges");
    // Another server may have asked for a later one.
    Add(Exchange(first.value() + Below(3)));
    SetPlan();
  }

  void Add(Exchange first) {
    absl::StrAppend(&log_, " join(", ++last_id_, ", ", first.value(), ")");
    const Member member{MemberId(last_id_), first, Exchange(first.value() - 1), false};
    // Ranks are given again and do not follow ids.
    members_.insert(members_.begin() + Below(members_.size() + 1), member);
  }

  void SetPlan() {
    Plan plan;
    plan.generation = Generation(++generation_);
    for (size_t i = 0; i < members_.size(); ++i) {
      plan.members.push_back({members_[i].id, Rank(i), members_[i].first});
    }
    one_.SetMembers(plan);
    other_.SetMembers(plan);
  }

  void Settle() {
    while (difference_.empty()) {
      const std::optional<float> a = one_.CommitDue(now_);
      const std::optional<float> b = other_.CommitDue(now_);
      if (a.has_value() != b.has_value()) Differ("commits that are due");
      if (a.has_value() && b.has_value() && *a != *b) {
        Differ(absl::StrCat("due scales ", *a, " and ", *b));
      }
      if (!a.has_value()) return;
      absl::StrAppend(&log_, " commit");
      ++version_;
    }
  }

  // Of members that wait, one at least could go on, or time will help.
  void CheckProgress() {
    const auto waits = [this](const Member& m) { return !MayRead(m); };
    const auto goes_on = [this](const Member& m) { return MayRead(m) && !m.resting; };
    if (std::any_of(members_.begin(), members_.end(), waits) &&
        std::none_of(members_.begin(), members_.end(), goes_on) && !one_.Deadline().has_value()) {
      Differ("all wait for ever");
    }
  }

  void CompareAnswers() {
    if (one_.NextInOrder() != other_.NextInOrder()) Differ("next in order");
    if (one_.Collecting() != other_.Collecting()) Differ("what is collected");
    if (one_.Deadline() != other_.Deadline()) Differ("deadlines");
    if (one_.FirstExchange(Exchange(1)) != other_.FirstExchange(Exchange(1))) {
      Differ("first exchanges");
    }
    std::vector<MemberId> a = one_.WaitsFor();
    std::vector<MemberId> b = other_.WaitsFor();
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    if (a != b) Differ("who is waited for");
    for (const Member& m : members_) {
      if (MayRead(m) != other_.MayRead(m.id, m.last)) {
        Differ(absl::StrCat("whether ", m.id.value(), " may read"));
      }
    }
  }

  const ScheduleOptions options_;
  ConsistencyPolicy& one_;
  ConsistencyPolicy& other_;
  std::mt19937_64 random_;
  std::vector<Member> members_;
  uint64_t last_id_ = 0;
  uint64_t generation_ = 0;
  uint64_t version_ = 0;
  absl::Time now_ = absl::UnixEpoch();
  std::string log_;
  std::string difference_;
};

}  // namespace

std::string Difference(uint64_t seed, const ScheduleOptions& options, ConsistencyPolicy* one,
                       ConsistencyPolicy* other) {
  return Schedule(seed, options, one, other).Run();
}

}  // namespace tessera

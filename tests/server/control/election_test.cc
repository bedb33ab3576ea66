// Elections over an etcd that is slow, loses answers and goes away. One thread, one seed each.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "server/control/election.h"

namespace tessera {
namespace {

constexpr absl::Duration kTtl = absl::Seconds(3);

// One key, and leases that end on time.
struct FakeEtcd {
  absl::Time now = absl::FromUnixSeconds(1000);
  std::map<int64_t, absl::Time> leases;
  int64_t last_lease = 0;
  int64_t revision = 1;
  Election::Holder holder;  // lease 0: the key is not there

  void Settle() {
    for (auto it = leases.begin(); it != leases.end();) {
      if (it->second > now) {
        ++it;
        continue;
      }
      if (holder.lease == it->first) holder = {};
      it = leases.erase(it);
    }
  }
  absl::StatusOr<Election::Lease> Grant() {
    leases[++last_lease] = now + kTtl;
    return Election::Lease{last_lease, kTtl};
  }
  absl::StatusOr<Election::Holder> Campaign(int64_t lease) {
    if (leases.count(lease) == 0) return absl::NotFoundError("lease");
    if (holder.lease == 0) holder = {lease, ++revision};
    return holder;
  }
  absl::StatusOr<absl::Duration> Keep(int64_t lease) {
    const auto found = leases.find(lease);
    if (found == leases.end()) return absl::NotFoundError("lease");
    found->second = now + kTtl;
    return kTtl;
  }
};

class Elections {
 public:
  Elections(uint32_t seed, int candidates) : random_(seed), candidates_(candidates) {
    for (int i = 0; i < candidates; ++i) Plan(i);
  }

  // `trouble`: answers are slow or lost, candidates freeze, etcd goes away.
  void Run(absl::Duration time, bool trouble) {
    trouble_ = trouble;
    const absl::Time end = etcd_.now + time;
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      etcd_.now = std::max(etcd_.now, event.at);
      etcd_.Settle();
      event.what();
      Check();
    }
    etcd_.now = end;
    etcd_.Settle();
  }

  int Leaders() const {
    int leaders = 0;
    for (const Candidate& c : candidates_) leaders += !c.frozen && c.election.Leads(etcd_.now);
    return leaders;
  }
  uint64_t tenures() const { return tenures_.size(); }

 private:
  struct Candidate {
    Election election;
    bool frozen = false;
  };
  struct Event {
    absl::Time at;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };

  int Dice(int sides) { return static_cast<int>(random_() % sides); }
  void At(absl::Time at, std::function<void()> what) {
    events_.push({std::max(at, etcd_.now), ++events_made_, std::move(what)});
  }

  // Never two: a frozen one does not know yet, and by the time it could act it does.
  void Check() {
    int leaders = 0;
    for (const Candidate& c : candidates_) {
      if (!c.election.Leads(etcd_.now)) continue;
      ++leaders;
      CHECK(etcd_.holder.revision == c.election.revision());
      tenures_.insert({c.election.revision(), true});
    }
    CHECK(leaders <= 1);
  }

  void Plan(int i) {
    At(candidates_[i].election.Next().at, [this, i] { Begin(i); });
  }

  void Begin(int i) {
    Candidate& c = candidates_[i];
    if (trouble_ && Dice(40) == 0) {
      c.frozen = true;
      At(etcd_.now + absl::Milliseconds(Dice(12000)), [this, i] {
        candidates_[i].frozen = false;
        Plan(i);
      });
      return;
    }
    if (trouble_ && Dice(300) == 0) {
      c.election.Resign(etcd_.now);
      Plan(i);
      return;
    }
    if (trouble_ && Dice(200) == 0) away_until_ = etcd_.now + absl::Milliseconds(Dice(8000));
    const Election::Step step = c.election.Next().step;
    const absl::Time asked = etcd_.now;
    const int64_t lease = c.election.lease();
    const auto there = absl::Milliseconds(trouble_ ? Dice(400) : Dice(20));
    At(etcd_.now + there, [this, i, step, asked, lease] { Arrive(i, step, asked, lease); });
  }

  void Arrive(int i, Election::Step step, absl::Time asked, int64_t lease) {
    const bool is_away = etcd_.now < away_until_;
    const bool is_lost = is_away || (trouble_ && Dice(12) == 0);
    const absl::Status lost = absl::UnavailableError("lost");
    const auto back =
        is_lost ? absl::Seconds(1) : absl::Milliseconds(trouble_ ? Dice(400) : Dice(20));
    std::function<void(Election&)> tell;
    switch (step) {
      case Election::Step::kGrant: {
        absl::StatusOr<Election::Lease> granted = lost;
        if (!is_away) granted = etcd_.Grant();
        if (is_lost) granted = lost;
        tell = [=](Election& e) { e.OnGranted(asked, granted, etcd_.now); };
        break;
      }
      case Election::Step::kCampaign: {
        absl::StatusOr<Election::Holder> holder = lost;
        if (!is_away) holder = etcd_.Campaign(lease);
        if (is_lost) holder = lost;
        tell = [=](Election& e) { e.OnCampaign(holder, etcd_.now); };
        break;
      }
      case Election::Step::kAwait:
        tell = [=](Election& e) { e.OnAwaited(etcd_.now); };
        break;
      case Election::Step::kKeep: {
        absl::StatusOr<absl::Duration> kept = lost;
        if (!is_away) kept = etcd_.Keep(lease);
        if (is_lost) kept = lost;
        tell = [=](Election& e) { e.OnKept(asked, kept, etcd_.now); };
        break;
      }
    }
    At(etcd_.now + back, [this, i, tell] {
      tell(candidates_[i].election);
      Plan(i);
    });
  }

  std::mt19937 random_;
  FakeEtcd etcd_;
  std::vector<Candidate> candidates_;
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
  bool trouble_ = false;
  absl::Time away_until_ = absl::InfinitePast();
  std::map<int64_t, bool> tenures_;
};

TEST_CASE("whatever becomes of messages, servers and etcd, never two lead, and one does in the end",
          "[control][election][sim]") {
  uint64_t tenures = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Elections elections(seed, 1 + seed % 5);
    elections.Run(absl::Seconds(120), /*trouble=*/true);
    // Whoever was frozen is awake, and leases have run out.
    elections.Run(absl::Seconds(40), /*trouble=*/false);
    CHECK(elections.Leaders() == 1);
    tenures += elections.tenures();
  }
  CHECK(tenures > 1000);
}

TEST_CASE("whoever leads in peace leads on", "[control][election]") {
  Elections elections(1, 3);
  elections.Run(absl::Seconds(600), /*trouble=*/false);
  CHECK(elections.Leaders() == 1);
  CHECK(elections.tenures() == 1);
}

TEST_CASE("a lease counts from before the call that brought it", "[control][election]") {
  const absl::Time begin = absl::FromUnixSeconds(1000);
  Election election;
  election.OnGranted(begin, Election::Lease{7, absl::Seconds(8)}, begin + absl::Seconds(5));
  election.OnCampaign(Election::Holder{7, 3}, begin + absl::Seconds(6));
  CHECK(election.Leads(begin + absl::Milliseconds(6900)));
  CHECK_FALSE(election.Leads(begin + absl::Seconds(7)));
  election.OnKept(begin + absl::Milliseconds(6100), absl::Seconds(8),
                  begin + absl::Milliseconds(6800));
  CHECK(election.Leads(begin + absl::Seconds(13)));
  CHECK_FALSE(election.Leads(begin + absl::Milliseconds(13100)));
}

TEST_CASE("an answer that comes when the lease may be over makes no leader",
          "[control][election]") {
  const absl::Time begin = absl::FromUnixSeconds(1000);
  Election election;
  election.OnGranted(begin, Election::Lease{7, absl::Seconds(8)}, begin);
  election.OnCampaign(Election::Holder{7, 3}, begin + absl::Seconds(7));
  CHECK_FALSE(election.Leads(begin + absl::Seconds(7)));
  CHECK(election.Next().step == Election::Step::kGrant);
}

TEST_CASE("its own old lease at the key is somebody else's", "[control][election]") {
  const absl::Time begin = absl::FromUnixSeconds(1000);
  Election election;
  election.OnGranted(begin, Election::Lease{7, absl::Seconds(8)}, begin);
  election.OnCampaign(Election::Holder{6, 3}, begin);
  CHECK_FALSE(election.Leads(begin));
  CHECK(election.Next().step == Election::Step::kAwait);
}

}  // namespace
}  // namespace tessera

// Who leads which shard while the coordinator is killed now and then, and goes on from what was kept.
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/log.h"
#include "server/control/members/shard_owners.h"

namespace tessera {
namespace {

constexpr int kHosts = 3;

// Of one shard, at one host. `values` counts what was pushed.
struct Role {
  v1::ShardOrder order;
  int values = 0;
  uint64_t synced_term = 0;  // leads: its standby had everything
  bool broken = false;
};

struct FakeHost {
  uint64_t life = 0;  // 0: dead
  bool frozen = false;
  bool attached = false;
  v1::HostOrder pending;
  bool has_pending = false;
  std::map<uint32_t, Role> roles;
};

// Hosts push, copy, die, freeze and come back by the dice; and so does the coordinator.
class Drama {
 public:
  Drama(uint32_t seed, bool restarts, bool reloads)
      : dice_(seed), restarts_(restarts), reloads_(reloads) {
    facts_.servers = kHosts;
    facts_.digest = "d";
    facts_.standbys = true;
    facts_.lease_timeout = absl::Seconds(4);
    owners_ = std::make_unique<ShardOwners>(facts_);
    kept_ = owners_->Save();
    acknowledged_.resize(kHosts);
    hosts_.resize(kHosts);
    for (int h = 0; h < kHosts; ++h) hosts_[h].life = ++next_life_;
  }

  v1::OwnersState Run(int events) {
    for (int i = 0; i < events; ++i) {
      now_ += absl::Milliseconds(Roll(200));
      Event(i < events * 2 / 3);
      owners_->Tick(now_);
      Settle();
    }
    return owners_->Save();
  }
  int takeovers() const { return takeovers_; }
  int coordinators() const { return coordinators_; }
  bool AllProtected() const { return owners_->AllProtected(); }
  std::string Story() const { return owners_->Save().DebugString(); }

 private:
  int Roll(int sides) { return static_cast<int>(dice_() % sides); }
  static std::string Address(uint32_t host) { return "host-" + std::to_string(host); }

  void Event(bool trouble) {
    const uint32_t h = Roll(kHosts);
    FakeHost& host = hosts_[h];
    // One at a time, so that there is always somebody who has what was acknowledged.
    const bool all_well = owners_->AllProtected();
    if (trouble && all_well && host.life != 0 && !host.frozen && Roll(60) == 0) {
      if (Roll(2) == 0) {
        Detach(h);
        host = FakeHost();
      } else {
        host.frozen = true;
      }
      return;
    }
    if (restarts_ && trouble && Roll(25) == 0) return Restart();
    if (host.frozen) {
      if (Roll(60) == 0) host.frozen = false;
      return;
    }
    if (host.life == 0) {
      if (Roll(20) == 0) host.life = ++next_life_;
      return;
    }
    if (!host.attached) return Attach(h);
    if (trouble && Roll(80) == 0) return Detach(h);
    if (host.has_pending && Roll(2) == 0) Obey(h);
    for (auto& [shard, role] : host.roles) Push(h, shard, &role);
    if (host.life != 0) owners_->OnMessage(h, Message(host), now_);
  }

  void Attach(uint32_t h) {
    v1::HostHello hello;
    hello.set_rank(h);
    hello.set_job_digest("d");
    hello.set_life(hosts_[h].life);
    hello.set_address(Address(h));
    const absl::Status attached = owners_->Attach(hello, now_);
    hosts_[h].attached = attached.ok();
    // It ends, as it is told to.
    if (absl::IsFailedPrecondition(attached)) hosts_[h] = FakeHost();
  }

  void Detach(uint32_t h) {
    if (hosts_[h].attached) owners_->Detach(h, hosts_[h].life, now_);
    hosts_[h].attached = false;
    hosts_[h].has_pending = false;
  }

  void Restart() {
    ++coordinators_;
    owners_ = std::make_unique<ShardOwners>(facts_);
    REQUIRE(owners_->Load(kept_).ok());
    for (FakeHost& host : hosts_) {
      host.attached = false;
      host.has_pending = false;
    }
    owners_->Reconnect(now_);
  }

  // After every event: what has changed is kept, and then sent.
  void Settle() {
    if (!started_ && owners_->AllProtected()) {
      started_ = true;
      owners_->OnStarted();
    }
    for (const ShardOwners::Loss& loss : owners_->TakeLosses()) {
      takeovers_ += loss.taken_over;
      if (!loss.led_anew && !loss.taken_over) acknowledged_[loss.shard.value()] = {};
    }
    if (owners_->changes() != kept_changes_) {
      kept_changes_ = owners_->changes();
      kept_ = owners_->Save();
    }
    for (HostOutgoing& out : owners_->TakeOutbox()) {
      FakeHost& host = hosts_[out.host];
      if (!out.order.refuse().empty()) {
        if (!host.frozen) host = FakeHost();
        host.attached = false;
      } else if (host.attached) {
        host.pending = std::move(out.order);
        host.has_pending = true;
      }
    }
    if (!reloads_) return;
    const v1::OwnersState state = owners_->Save();
    owners_ = std::make_unique<ShardOwners>(facts_);
    REQUIRE(owners_->Load(state).ok());
  }

  void Obey(uint32_t h) {
    FakeHost& host = hosts_[h];
    host.has_pending = false;
    std::map<uint32_t, Role> next;
    for (const v1::ShardOrder& order : host.pending.shards()) {
      Role role;
      const auto old = host.roles.find(order.shard());
      if (old != host.roles.end()) role = old->second;
      const bool was_led = role.order.role() == v1::LEAD;
      if (order.role() == v1::FOLLOW && role.order.term() != order.term()) role = Role();
      if (order.role() == v1::LEAD && !was_led) {
        // What was acknowledged by the leader before it is here.
        const auto& [lead_term, values] = acknowledged_[order.shard()];
        INFO("shard " << order.shard() << " term " << order.lead_term() << "\n" << Story());
        if (values > 0) REQUIRE(role.values >= values);
        acknowledged_[order.shard()].first = order.lead_term();
        owners_->OnLed(ShardId(order.shard()), now_);
      }
      if (role.order.SerializeAsString() != order.SerializeAsString()) role.broken = false;
      role.order = order;
      next[order.shard()] = role;
    }
    host.roles = std::move(next);
  }

  // The host that follows in this term; nullptr: none does.
  Role* Standby(const v1::ShardOrder& order) {
    for (uint32_t h = 0; h < kHosts; ++h) {
      if (Address(h) != order.standby() || hosts_[h].life == 0 || hosts_[h].frozen) continue;
      const auto role = hosts_[h].roles.find(order.shard());
      const bool follows = role != hosts_[h].roles.end() &&
                           role->second.order.role() == v1::FOLLOW &&
                           role->second.order.term() == order.term();
      return follows ? &role->second : nullptr;
    }
    return nullptr;
  }

  // A leader's next push, acknowledged when its standby has it; before that the standby gets a copy.
  void Push(uint32_t h, uint32_t shard, Role* role) {
    if (role->order.role() != v1::LEAD || role->broken) return;
    if (!role->order.standby().empty()) {
      Role* const standby = Standby(role->order);
      if (standby == nullptr) {
        role->broken = true;
        return;
      }
      standby->values = ++role->values;
      role->synced_term = role->order.term();
    } else {
      // Alone, or its standby is not ready: nobody else will have it.
      if (role->synced_term == role->order.term()) return;
      ++role->values;
    }
    auto& [lead_term, values] = acknowledged_[shard];
    if (lead_term == role->order.lead_term()) values = role->values;
  }

  v1::HostMessage Message(const FakeHost& host) const {
    v1::HostMessage message;
    for (const auto& [shard, role] : host.roles) {
      if (role.order.role() == v1::FOLLOW) {
        *message.add_follows() = role.order;
      } else if (!role.order.standby().empty()) {
        v1::LeaderReport& report = *message.add_leads();
        report.set_shard(shard);
        report.set_term(role.order.term());
        report.set_in_sync(role.synced_term == role.order.term());
        if (role.broken) report.set_broken("gone");
      }
    }
    return message;
  }

  std::mt19937 dice_;
  const bool restarts_;
  const bool reloads_;
  JobFacts facts_;
  std::unique_ptr<ShardOwners> owners_;
  v1::OwnersState kept_;
  uint64_t kept_changes_ = 0;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint64_t next_life_ = 0;
  std::vector<FakeHost> hosts_;
  // By shard: in which lead term, and how much.
  std::vector<std::pair<uint64_t, int>> acknowledged_;
  bool started_ = false;
  int takeovers_ = 0;
  int coordinators_ = 0;
};

TEST_CASE("owners that are saved and loaded after every event do what others do",
          "[standby][control][state]") {
  SetLogLevel(LogLevel::kError);
  for (uint32_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    const v1::OwnersState plain = Drama(seed, false, false).Run(1500);
    const v1::OwnersState loaded = Drama(seed, false, true).Run(1500);
    REQUIRE(loaded.DebugString() == plain.DebugString());
  }
}

TEST_CASE("nothing that was acknowledged is lost, whenever leaders and coordinators die",
          "[standby][control][state][sim]") {
  SetLogLevel(LogLevel::kError);
  int takeovers = 0, coordinators = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Drama drama(seed, true, false);
    drama.Run(3000);
    INFO(drama.Story());
    CHECK(drama.AllProtected());
    takeovers += drama.takeovers();
    coordinators += drama.coordinators();
  }
  CHECK(takeovers > 800);
  CHECK(coordinators > 10000);
}

TEST_CASE("who leads is refused where it contradicts itself", "[standby][control][state]") {
  SetLogLevel(LogLevel::kError);
  JobFacts facts;
  facts.servers = 2;
  facts.standbys = true;
  const auto load = [&](auto change) {
    ShardOwners owners(facts);
    v1::OwnersState state = owners.Save();
    for (int h = 0; h < 2; ++h) state.mutable_hosts(h)->set_known(true);
    for (int s = 0; s < 2; ++s) {
      v1::ShardOwner& owner = *state.mutable_shards(s)->mutable_owner();
      owner.set_leader(s);
      owner.set_standby(1 - s);
      owner.set_in_sync(true);
      owner.set_term(3);
      owner.set_lead_term(2);
    }
    change(&state);
    return ShardOwners(facts).Load(state);
  };
  const auto owner = [](v1::OwnersState* state) {
    return state->mutable_shards(1)->mutable_owner();
  };
  CHECK(load([](v1::OwnersState*) {}).ok());
  CHECK(
      absl::IsInvalidArgument(load([](v1::OwnersState* s) { s->mutable_hosts()->RemoveLast(); })));
  CHECK(
      absl::IsInvalidArgument(load([](v1::OwnersState* s) { s->mutable_shards()->RemoveLast(); })));
  CHECK(absl::IsInvalidArgument(load([&](v1::OwnersState* s) { owner(s)->set_leader(2); })));
  CHECK(absl::IsInvalidArgument(load([&](v1::OwnersState* s) { owner(s)->set_standby(1); })));
  CHECK(absl::IsInvalidArgument(load([&](v1::OwnersState* s) { owner(s)->clear_standby(); })));
  CHECK(absl::IsInvalidArgument(load([&](v1::OwnersState* s) { owner(s)->clear_leader(); })));
  CHECK(absl::IsInvalidArgument(load([&](v1::OwnersState* s) { owner(s)->set_lead_term(4); })));
  CHECK(absl::IsInvalidArgument(
      load([](v1::OwnersState* s) { s->mutable_hosts(0)->set_known(false); })));
}

}  // namespace
}  // namespace tessera

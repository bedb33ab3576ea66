// The control plane under random schedules: workers join, train, die, freeze and leave, servers are
// slow and lose their connections, evaluations come and go, and where it is wanted the coordinator is killed and
// goes on from its state. One thread, one seed each.
#ifndef TESSERA_TESTS_SERVER_CONTROL_RANDOM_SCHEDULE_H_
#define TESSERA_TESTS_SERVER_CONTROL_RANDOM_SCHEDULE_H_

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/server/control/control_fixture.h"

namespace tessera {

// What becomes of the coordinator between events.
enum class Upheaval {
  kNone,
  kReload,   // after every event it is saved, and the one that is loaded goes on
  kRestart,  // now and then it is killed, and goes on from what was kept before anything was sent
};

struct ScheduledWorker {
  uint64_t member = 0;
  uint64_t rank = 0;
  bool admitted = false;
  bool frozen = false;
  bool gone = false;
  uint64_t first_exchange = 0;
  uint64_t exchange = 0;
  uint64_t drain = 0;
  // 0: trains; 1, 2, 3: in that stage of an evaluation
  int stage = 0;
  bool asked = false;
  uint64_t evaluation = 0;
  uint64_t attempt = 0;
};

class Schedule {
 public:
  Schedule(uint32_t seed, bool synchronous, Upheaval upheaval = Upheaval::kNone)
      : random_(seed),
        upheavals_(seed + 1),
        f_(Facts(seed, synchronous)),
        synchronous_(synchronous),
        upheaval_(upheaval) {
    f_.reload = upheaval == Upheaval::kReload;
  }

  // The job's last status.
  v1::JobStatus Run() {
    for (int i = 0; i < 3000 && !f_.coordinator->ended(); ++i) {
      // Trouble only in the first part, so that the rest shows that nothing hangs.
      Event(i < 800);
      if (upheaval_ == Upheaval::kRestart && i < 800 && upheavals_() % 40 == 0) Restart();
      Check();
    }
    const v1::JobStatus status = f_.coordinator->Status(f_.now);
    INFO(Story() + status.DebugString());
    REQUIRE(f_.coordinator->ended());
    CHECK(status.state() == "done");
    CHECK(f_.coordinator->outcome().ok() == finished_);
    CHECK(!status.report_json().empty());
    return status;
  }
  int restarts() const { return restarts_; }

 private:
  void Restart() {
    f_.Restart();
    ++restarts_;
    // Calls have broken; whoever has no answer asks again.
    for (ScheduledWorker& worker : workers_) worker.asked = false;
  }

  static JobFacts Facts(uint32_t seed, bool synchronous) {
    JobFacts facts = ControlFixture::Facts(1 + seed % 3, 1 + seed % 4);
    facts.epochs = 0;
    facts.steps = 60;
    facts.synchronous = synchronous;
    return facts;
  }

  // Where everybody is, for a failure.
  std::string Story() const {
    std::string story;
    for (const ScheduledWorker& w : workers_) {
      story += "member " + std::to_string(w.member) + " exchange " + std::to_string(w.exchange) +
               " stage " + std::to_string(w.stage) + (w.admitted ? " admitted" : "") +
               (w.frozen ? " frozen" : "") + (w.gone ? " gone" : "") + "\n";
    }
    for (const FakeServer& server : f_.servers) {
      story += "server holds " + std::to_string(server.held.size()) + " inbox " +
               std::to_string(server.inbox.size()) + " plan " + server.plan.ShortDebugString() +
               "\n";
    }
    return story;
  }

  int Dice(int sides) { return static_cast<int>(random_() % sides); }

  void Event(bool trouble) {
    f_.Tick(absl::Milliseconds(Dice(300)));
    for (size_t s = 0; s < f_.servers.size(); ++s) Server(s, trouble);
    if (workers_.size() < 4 || (trouble && workers_.size() < 12 && Dice(30) == 0)) {
      workers_.emplace_back();
    }
    for (ScheduledWorker& worker : workers_) {
      if (!worker.gone && !worker.frozen) Act(worker, trouble);
    }
  }

  void Server(int s, bool trouble) {
    const ServerRecord& record = f_.coordinator->membership().servers().at(ShardId(s));
    if (!record.attached) {
      f_.servers[s].inbox.clear();
      (void)f_.Attach(s);
      return;
    }
    if (trouble && Dice(60) == 0) {
      f_.coordinator->Detach(ShardId(s), 100 + s, f_.now);
      return;
    }
    f_.servers[s].collecting = std::max(f_.servers[s].collecting, Collecting());
    v1::ShardMessage alive;
    alive.mutable_counters()->set_exchange_committed(f_.servers[s].collecting - 1);
    if (!f_.servers[s].drained) f_.coordinator->OnShardMessage(ShardId(s), alive, f_.now);
    if (Dice(2) == 0) f_.Step(s);
  }

  // What all servers have committed, plus one.
  uint64_t Collecting() const {
    uint64_t most = 0;
    for (const ScheduledWorker& worker : workers_) most = std::max(most, worker.exchange);
    return most + 1;
  }

  bool MayTrain(const ScheduledWorker& worker) const {
    if (!synchronous_) return true;
    // A barrier: the exchange after this one needs all who count in it, and no server may hold it.
    for (const FakeServer& server : f_.servers) {
      if (!server.held.empty()) return false;
      for (const v1::Member& m : server.plan.members()) {
        if (m.first_exchange() > worker.exchange + 1) continue;
        for (const ScheduledWorker& other : workers_) {
          if (other.member == m.member() && other.exchange < worker.exchange) return false;
          if (other.member == m.member() && !other.admitted) return false;
        }
      }
    }
    return true;
  }

  void Act(ScheduledWorker& worker, bool trouble) {
    if (worker.member != 0 && trouble && Dice(150) == 0) {
      if (Dice(2) == 0) {
        worker.frozen = true;
      } else {
        worker.gone = true;
        (void)f_.Leave(worker.member, "killed");
      }
      return;
    }
    if (!worker.admitted) {
      auto reply = f_.Join(worker.member);
      if (!reply.ok()) {
        worker.gone = true;
        return;
      }
      worker.member = reply->member();
      worker.rank = reply->rank();
      if (reply->admitted()) {
        worker.admitted = true;
        worker.first_exchange = reply->first_exchange();
        worker.exchange = reply->first_exchange() - 1;
        for (size_t s = 0; s < f_.servers.size(); ++s) {
          // Nobody is admitted before every server counts it.
          bool counts = false;
          for (const v1::Member& m : f_.servers[s].plan.members()) {
            counts |= m.member() == worker.member;
          }
          CHECK(counts);
          if (synchronous_) CHECK(worker.first_exchange >= f_.servers[s].collecting);
        }
        CHECK(f_.coordinator->BeginTraining(MemberId(worker.member), f_.now).ok());
      }
      return;
    }
    auto renewed = f_.Renew(worker.member, worker.exchange, worker.exchange, worker.drain);
    if (!renewed.ok()) {
      worker.gone = true;
      return;
    }
    worker.drain = renewed->drain_exchange();
    if (worker.stage > 0) {
      Evaluate(worker);
    } else if (worker.exchange >= 60) {
      worker.stage = 1;
    } else if (Dice(2) == 0 && MayTrain(worker)) {
      ++worker.exchange;
      if (worker.exchange % 20 == 0) worker.stage = 1;
    }
  }

  void Evaluate(ScheduledWorker& worker) {
    if (!worker.asked) {
      const auto stage = static_cast<v1::EvaluateStage>(worker.stage - 1);
      const uint64_t number = worker.stage == 1 && worker.attempt == 0 && worker.evaluation > 0
                                  ? worker.evaluation + 1
                                  : worker.evaluation;
      const absl::Status asked =
          f_.Evaluate(worker.member, stage, worker.exchange, worker.attempt, number);
      CHECK(asked.ok());
      worker.asked = asked.ok();
      return;
    }
    auto answer = f_.Answer(worker.member);
    if (!answer) return;
    worker.asked = false;
    if (!answer->ok()) {
      worker.gone = true;
      return;
    }
    const v1::EvaluateReply& reply = **answer;
    worker.evaluation = reply.evaluation();
    worker.attempt = reply.attempt();
    if (reply.restart()) {
      worker.stage = 1;
      return;
    }
    if (!reply.finished() && ++worker.stage <= 3) return;
    worker.stage = 0;
    worker.attempt = 0;
    if (reply.stop() || worker.exchange >= 60) {
      CHECK(f_.Leave(worker.member).ok());
      worker.gone = true;
      finished_ = true;
    }
  }

  void Check() {
    const Membership& membership = f_.coordinator->membership();
    CHECK(membership.generation() >= generation_);
    generation_ = membership.generation();
    std::set<uint64_t> ranks;
    for (const auto& [id, record] : membership.members().all()) {
      if (IsLive(record.state)) CHECK(ranks.insert(record.rank.value()).second);
    }
  }

  std::mt19937 random_;
  std::mt19937 upheavals_;
  ControlFixture f_;
  const bool synchronous_;
  const Upheaval upheaval_;
  int restarts_ = 0;
  std::vector<ScheduledWorker> workers_;
  Generation generation_;
  bool finished_ = false;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_CONTROL_RANDOM_SCHEDULE_H_

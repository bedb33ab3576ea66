#include "server/control/members/proposals.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

using Purpose = Proposals::Purpose;

// Two servers, and one worker that waits.
struct Job {
  Job() : servers(facts), members(facts), outbox(servers), proposals(servers, members, &outbox) {
    members.Add({}, Rank(0), absl::UnixEpoch());
  }

  void Propose(Purpose purpose, Exchange from) {
    if (purpose == Purpose::kJoiner) {
      members.SetState(members.Find(MemberId(1)), MemberState::kProposed);
    }
    proposals.Open(purpose, from, purpose == Purpose::kJoiner ? MemberId(1) : MemberId());
  }
  // Both servers answer the proposal that was told last with this exchange.
  bool Answer(Exchange promised) {
    const uint64_t number = Told().propose().proposal();
    CHECK_FALSE(proposals.OnReply(ShardId(0), number, promised));
    return proposals.OnReply(ShardId(1), number, promised);
  }
  // What both servers were told last.
  const v1::PlanMessage& Told() {
    const std::vector<Outgoing> sent = outbox.Take();
    if (!sent.empty()) {
      REQUIRE(sent.size() % 2 == 0);
      last = sent.back().message;
      CHECK(sent[sent.size() - 2].message.SerializeAsString() == last.SerializeAsString());
    }
    return last;
  }

  const JobFacts facts = [] {
    JobFacts made;
    made.servers = 2;
    return made;
  }();
  ServerTable servers;
  MemberTable members;
  ServerOutbox outbox;
  Proposals proposals;
  v1::PlanMessage last;
};

TEST_CASE("an exchange that all servers promise is agreed on, for what it was proposed",
          "[control]") {
  for (const Purpose purpose :
       {Purpose::kJoiner, Purpose::kRecut, Purpose::kDrain, Purpose::kCheckpoint, Purpose::kHold}) {
    Job job;
    job.Propose(purpose, Exchange(4));
    CHECK(job.proposals.Missing().size() == 2);
    CHECK(job.Told().propose().member().first_exchange() == 4);
    CHECK(job.Told().propose().member().member() == (purpose == Purpose::kJoiner ? 1 : 0));
    CHECK(job.Answer(Exchange(4)));
    CHECK(job.proposals.IsFor(purpose));
    CHECK(job.proposals.agreed() == Exchange(4));
  }
}

TEST_CASE("a later exchange is proposed under another number", "[control]") {
  Job job;
  job.Propose(Purpose::kDrain, Exchange(4));
  const uint64_t first = job.Told().propose().proposal();
  CHECK_FALSE(job.Answer(Exchange(9)));
  CHECK(job.Told().withdraw() == first);
  CHECK(job.Told().propose().proposal() > first);
  CHECK(job.Answer(Exchange(9)));
  CHECK(job.proposals.agreed() == Exchange(9));
}

TEST_CASE("whoever comes back hears what is open, and that the rest has ended", "[control]") {
  Job job;
  v1::PlanMessage state;
  job.Propose(Purpose::kDrain, Exchange(4));
  const uint64_t number = job.Told().propose().proposal();
  job.proposals.Fill(&state);
  CHECK((state.propose().proposal() == number && state.withdraw() == number - 1));
  job.proposals.Withdraw();
  CHECK(job.Told().withdraw() == number);
  state.Clear();
  job.proposals.Fill(&state);
  CHECK((!state.has_propose() && state.withdraw() == number));
}

TEST_CASE("a checkpoint's promise turns into a hold with its order", "[control]") {
  Job job;
  job.Propose(Purpose::kCheckpoint, Exchange(4));
  const uint64_t number = job.Told().propose().proposal();
  REQUIRE(job.Answer(Exchange(4)));
  v1::PlanMessage order;
  order.mutable_checkpoint()->set_after_exchange(4);
  job.proposals.TurnIntoHold(Exchange(5), order);
  CHECK(job.proposals.IsFor(Purpose::kHold));
  CHECK(job.Told().withdraw() == number);
  CHECK(job.Told().checkpoint().after_exchange() == 4);
  CHECK(job.Told().propose().member().first_exchange() == 5);
}

TEST_CASE("an open proposal is saved with what it is for", "[control]") {
  for (const Purpose purpose :
       {Purpose::kJoiner, Purpose::kRecut, Purpose::kDrain, Purpose::kCheckpoint, Purpose::kHold}) {
    Job job;
    job.Propose(purpose, Exchange(4));
    v1::MembershipState state;
    job.proposals.Save(&state);
    Proposals loaded(job.servers, job.members, &job.outbox);
    REQUIRE(loaded.Load(state, /*is_closed=*/false).ok());
    CHECK(loaded.IsFor(purpose));
    CHECK(loaded.joiner() == job.proposals.joiner());
  }
}

TEST_CASE("a state in which a member is to be agreed on and nobody was asked is refused",
          "[control]") {
  Job job;
  job.members.SetState(job.members.Find(MemberId(1)), MemberState::kProposed);
  CHECK(absl::IsInvalidArgument(job.proposals.Load({}, /*is_closed=*/false)));
  CHECK(job.proposals.Load({}, /*is_closed=*/true).ok());
  v1::MembershipState other;
  other.mutable_open()->set_joiner(2);
  CHECK(absl::IsInvalidArgument(job.proposals.Load(other, /*is_closed=*/false)));
}

}  // namespace
}  // namespace tessera

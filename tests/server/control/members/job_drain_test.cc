#include "server/control/members/job_drain.h"

#include <catch2/catch.hpp>

#include "server/control/job_facts.h"

namespace tessera {
namespace {

// Two members of a plan.
struct Job {
  Job() : members(facts) {
    for (uint64_t rank = 0; rank < 2; ++rank) {
      v1::JoinRequest request;
      request.set_life(100 + rank);
      const MemberId member = members.Add(request, Rank(rank), absl::UnixEpoch());
      members.SetState(members.Find(member), MemberState::kAdmitted);
    }
  }

  JobDrain Reloaded() const {
    v1::MembershipState state;
    drain.Save(&state);
    JobDrain loaded;
    loaded.Load(state);
    return loaded;
  }

  const JobFacts facts;
  MemberTable members;
  JobDrain drain;
};

TEST_CASE("a drain is released once all members have heard of its exchange", "[control]") {
  Job job;
  CHECK_FALSE(job.Reloaded().wanted());
  job.drain.Want();
  CHECK((job.Reloaded().wanted() && !job.Reloaded().released()));
  CHECK_FALSE(job.drain.ReleaseIfAllHeard(job.members));
  job.drain.Agree(Exchange(7));
  CHECK(job.Reloaded().exchange() == Exchange(7));
  job.members.Find(MemberId(1))->drain_seen = 7;
  CHECK_FALSE(job.drain.ReleaseIfAllHeard(job.members));
  job.members.Find(MemberId(2))->drain_seen = 7;
  CHECK(job.drain.ReleaseIfAllHeard(job.members));
  CHECK(job.Reloaded().released());
  CHECK_FALSE(job.drain.ReleaseIfAllHeard(job.members));
}

TEST_CASE("a member has stopped once it has made the exchange of a released drain", "[control]") {
  Job job;
  MemberRecord& member = *job.members.Find(MemberId(1));
  member.progress.set_exchange(7);
  job.drain.Want();
  job.drain.Agree(Exchange(7));
  CHECK_FALSE(job.drain.HasStopped(member));
  for (const MemberId id : {MemberId(1), MemberId(2)}) job.members.Find(id)->drain_seen = 7;
  REQUIRE(job.drain.ReleaseIfAllHeard(job.members));
  CHECK(job.drain.HasStopped(member));
  member.progress.set_exchange(6);
  CHECK_FALSE(job.drain.HasStopped(member));
}

TEST_CASE("a drain without lockstep is released at once", "[control]") {
  Job job;
  job.drain.Want();
  job.drain.ReleaseAtOnce();
  CHECK(job.Reloaded().released());
}

}  // namespace
}  // namespace tessera

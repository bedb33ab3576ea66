#include "server/control/members/start_list.h"

#include <catch2/catch.hpp>

#include "common/rpc/control_protocol.h"

namespace tessera {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);

// A job of two workers, and who has joined.
struct Job {
  Job() : members(facts), list(facts) {}

  void Join(uint32_t rank) {
    v1::JoinRequest request;
    request.set_protocol(kControlProtocol);
    request.set_job_digest("d1");
    request.set_layout_hash(77);
    request.set_rows(100);
    request.set_rank(rank);
    request.set_life(100 + rank);
    members.Add(request, Rank(rank), now);
  }
  bool IsComplete() const { return list.IsComplete(members); }

  const JobFacts facts = [] {
    JobFacts made;
    made.digest = "d1";
    made.layout_hash = 77;
    made.servers = 1;
    made.workers = 2;
    made.lease_timeout = kLease;
    return made;
  }();
  absl::Time now = absl::FromUnixSeconds(1000);
  MemberTable members;
  StartList list;
};

TEST_CASE("a job begins with all ranks that it asks for, however long that takes",
          "[control][start]") {
  Job job;
  CHECK(job.list.Awaited() == std::set<Rank>{Rank(0), Rank(1)});
  CHECK_FALSE(job.IsComplete());
  job.Join(1);
  job.Join(2);
  CHECK_FALSE(job.IsComplete());
  CHECK_FALSE(job.list.IsTimeUp(job.now + 1000 * kLease));
  CHECK_FALSE(job.IsComplete());
  job.Join(0);
  CHECK(job.IsComplete());
}

TEST_CASE("a job that goes back waits for those that were members", "[control][start]") {
  Job job;
  job.list.GoBack(std::set<Rank>{Rank(1), Rank(5)});
  CHECK(job.list.goes_back());
  CHECK((job.list.WasMember(Rank(5)) && !job.list.WasMember(Rank(0))));
  job.Join(0);
  job.Join(1);
  CHECK_FALSE(job.IsComplete());
  // Once more, while they come.
  job.list.GoBack(std::nullopt);
  CHECK(job.list.Awaited() == std::set<Rank>{Rank(1), Rank(5)});
  job.Join(5);
  CHECK(job.IsComplete());
  // It had no members: as at first.
  job.list.GoBack(std::set<Rank>{});
  CHECK_FALSE(job.list.goes_back());
  CHECK(job.IsComplete());
}

TEST_CASE("members that do not come in time are not waited for, and a new process knows it",
          "[control][start]") {
  Job job;
  job.list.GoBack(std::set<Rank>{Rank(0), Rank(1)});
  // The time begins when the servers are ready.
  job.now += 100 * kLease;
  CHECK_FALSE(job.list.IsTimeUp(job.now));
  job.now += kRejoinLeases * kLease;
  const bool is_loaded = GENERATE(false, true);
  const auto reload = [&] {
    v1::MembershipState state;
    job.list.Save(&state);
    if (is_loaded) job.list.Load(state);
  };
  reload();
  CHECK_FALSE(job.list.IsTimeUp(job.now));
  CHECK(job.list.IsTimeUp(job.now + absl::Nanoseconds(1)));
  reload();
  // Not with nobody.
  CHECK_FALSE(job.IsComplete());
  job.Join(1);
  CHECK(job.IsComplete());
  // The next time they have as long again.
  job.list.GoBack(std::nullopt);
  CHECK_FALSE(job.IsComplete());
  CHECK_FALSE(job.list.IsTimeUp(job.now));
}

}  // namespace
}  // namespace tessera

// Whole jobs under faults, hundreds of them, on virtual time.
#include <catch2/catch.hpp>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

std::string NameOf(SimMethod method) {
  switch (method) {
    case SimMethod::kDataParallel:
      return "data_parallel";
    case SimMethod::kLocalSgd:
      return "local_sgd";
    case SimMethod::kLocalSgdOverlapped:
      return "local_sgd overlapped";
    case SimMethod::kAsyncSgd:
      return "async_sgd";
    case SimMethod::kAsyncSgdDeltas:
      return "async_sgd deltas";
    case SimMethod::kAsyncSgdInverse:
      return "async_sgd inverse";
    case SimMethod::kSoftsync:
      return "softsync";
    case SimMethod::kSoftsyncInverse:
      return "softsync inverse";
    case SimMethod::kSsp:
      return "ssp";
    case SimMethod::kDiloco:
      return "diloco";
    case SimMethod::kDilocoQuorum:
      return "diloco quorum";
    case SimMethod::kDilocoAsynchronous:
      return "diloco asynchronous";
    case SimMethod::kIst:
      return "ist";
    case SimMethod::kSlimDp:
      return "slim_dp";
    case SimMethod::kSlimDpAsynchronous:
      return "slim_dp asynchronous";
  }
  return "";
}

constexpr SimMethod kMethods[] = {
    SimMethod::kDataParallel, SimMethod::kLocalSgd,        SimMethod::kLocalSgdOverlapped,
    SimMethod::kAsyncSgd,     SimMethod::kAsyncSgdDeltas,  SimMethod::kAsyncSgdInverse,
    SimMethod::kSoftsync,     SimMethod::kSoftsyncInverse, SimMethod::kSsp,
    SimMethod::kDiloco,       SimMethod::kDilocoQuorum,    SimMethod::kDilocoAsynchronous,
    SimMethod::kIst,          SimMethod::kSlimDp,          SimMethod::kSlimDpAsynchronous};

// A job of which takes ten times as long as one of another method.
bool TakesLong(SimMethod method) {
  return method == SimMethod::kSlimDp || method == SimMethod::kSlimDpAsynchronous;
}

// What to type to see this run again, with its log.
std::string Replay(uint64_t seed) {
  return absl::StrCat(
      "seed=", seed,
      "; replay: bazel test //tests/sim:sim_test --test_output=all --test_arg=--seed=", seed);
}

// Every seed of one method; the totals show that the faults were there.
SimOutcome RunAll(SimMethod method, bool faults, bool standbys, uint64_t count,
                  bool coordinator_dies = false, bool checkpoints = false) {
  SimOutcome total;
  const Seeds seeds{ChosenSeeds().first, count};
  // Of jobs that finish. Others lose all their workers, or a shard, and each is asked whether it may.
  const uint64_t least_percent = !faults ? 99 : checkpoints ? 40 : standbys ? 65 : 70;
  uint64_t finished = 0, judged = 0, drained = 0, protected_again = 0, forgiven = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const SimOutcome outcome =
        SimJob({seed, method, Mutation::kNone, faults, standbys, coordinator_dies, checkpoints})
            .Run();
    INFO(NameOf(method) << ": " << Replay(seed));
    INFO(outcome.violation.value_or(""));
    REQUIRE_FALSE(outcome.violation.has_value());
    finished += outcome.finished ? 1 : 0;
    judged += outcome.judged ? 1 : 0;
    total.commits += outcome.commits;
    total.lost += outcome.lost;
    total.joined_late += outcome.joined_late;
    total.partial_pushes += outcome.partial_pushes;
    total.takeovers += outcome.takeovers;
    total.checkpoints += outcome.checkpoints;
    total.rollbacks += outcome.rollbacks;
    drained += outcome.drained ? 1 : 0;
    total.reached.restarts += outcome.reached.restarts;
    total.reached.recuts += outcome.reached.recuts;
    total.reached.stale += outcome.reached.stale;
    total.several += outcome.several;
    total.reached.coded += outcome.reached.coded;
    total.reached.by_qsgd += outcome.reached.by_qsgd;
    total.reached.held += outcome.reached.held;
    total.reached.taken_up += outcome.reached.taken_up;
    total.reached.flushed += outcome.reached.flushed;
    total.reached.seen += outcome.reached.seen;
    total.struck_evaluating += outcome.struck_evaluating;
    total.coordinators += outcome.coordinators - 1;
    forgiven += outcome.forgiven ? 1 : 0;
    protected_again += outcome.protected_again ? 1 : 0;
  }
  total.protected_again = protected_again * 10 > seeds.count;
  total.forgiven = forgiven > 0;
  total.drained = drained * 30 > seeds.count;
  total.judged = judged * 2 > seeds.count;
  total.finished = finished * 100 > seeds.count * least_percent;
  return total;
}

// Where pushes are of changes or gradients.
void CheckHeldBack(const Checker::Reached& reached, uint64_t count) {
  CHECK(reached.held > 4 * count);
  CHECK(reached.flushed > count / 10);
}

TEST_CASE("whatever the network does, updates count once and every job ends", "[sim]") {
  for (const SimMethod method : kMethods) {
    DYNAMIC_SECTION(NameOf(method)) {
      const uint64_t count = TakesLong(method) ? SeedsOf(300) : CheapSeeds(300);
      const SimOutcome total = RunAll(method, /*faults=*/true, /*standbys=*/false, count);
      if (count < 75) continue;
      // A simulation without trouble proves nothing.
      CHECK(total.finished);
      CHECK(total.judged);
      CHECK(total.lost > count / 2);
      CHECK(total.joined_late > count / 4);
      CHECK(total.partial_pushes > 0);
      CHECK(total.drained);
      CHECK(total.reached.restarts > count / 30);
      CHECK(total.struck_evaluating > count / 15);
      if (method == SimMethod::kIst) CHECK(total.reached.recuts > count);
      CHECK(total.several > count / 3);
      CHECK(total.reached.coded > 6 * count);
      CHECK(total.reached.seen > 6 * count);
      if (method != SimMethod::kIst) CheckHeldBack(total.reached, count);
      if (method == SimMethod::kDataParallel) CHECK(total.reached.by_qsgd > 0);
      if (method == SimMethod::kAsyncSgd) CHECK(total.reached.stale > count);
    }
  }
}

TEST_CASE("whatever happens to servers, standbys take over and nothing acknowledged is lost",
          "[sim]") {
  for (const SimMethod method : kMethods) {
    DYNAMIC_SECTION(NameOf(method)) {
      const uint64_t count = TakesLong(method) ? SeedsOf(150) : SeedsOf(300);
      const SimOutcome total = RunAll(method, /*faults=*/true, /*standbys=*/true, count);
      if (count < 37) continue;
      CHECK(total.finished);
      CHECK(total.judged);
      CHECK(total.takeovers > count / 2);
      CHECK(total.protected_again);
    }
  }
}

TEST_CASE("whoever goes on as the coordinator knows all that anybody was told", "[sim]") {
  for (const SimMethod method : kMethods) {
    for (const bool standbys : {false, true}) {
      DYNAMIC_SECTION(NameOf(method) << (standbys ? " with standbys" : "")) {
        // What there is to see is the coordinator's, whatever the method.
        const uint64_t count = SeedsOf(60);
        const SimOutcome total = RunAll(method, /*faults=*/true, standbys, count,
                                        /*coordinator_dies=*/true);
        if (count < 15) continue;
        CHECK(total.coordinators > count);
        CHECK(total.finished);
        CHECK(total.judged);
        if (count >= 100) CHECK(total.forgiven);
      }
    }
  }
}

TEST_CASE("whatever dies, jobs go back to a checkpoint that is whole and of one moment", "[sim]") {
  struct World {
    const char* name;
    bool standbys;
    bool coordinator_dies;
    uint64_t seeds;  // of the long form
  };
  for (const World& world :
       {World{"servers die", false, false, 60}, World{"standbys die", true, false, 25},
        World{"the coordinator dies", false, true, 25}, World{"all die", true, true, 180}}) {
    DYNAMIC_SECTION(world.name) {
      const uint64_t count = SeedsOf(world.seeds);
      uint64_t runs = 0, checkpoints = 0, rollbacks = 0, finished = 0, taken_up = 0;
      for (const SimMethod method : kMethods) {
        const SimOutcome total = RunAll(method, /*faults=*/true, world.standbys, count,
                                        world.coordinator_dies, /*checkpoints=*/true);
        runs += count;
        checkpoints += total.checkpoints;
        rollbacks += total.rollbacks;
        finished += total.finished ? 1 : 0;
        taken_up += total.reached.taken_up;
      }
      if (count < 6) continue;
      CHECK(checkpoints > runs);
      CHECK(rollbacks > runs / (world.standbys ? 40 : 8));
      CHECK(finished * 10 >= 9 * std::size(kMethods));
      CHECK(taken_up > runs / 80);
      if (ChosenSeeds().chosen) std::cout << "taken up " << taken_up << " of " << runs << std::endl;
    }
  }
}

// Seeds that once found a bug, and what it was. What a seed does changes with the simulator; each is kept
// for as long as it is cheap.
struct FoundBug {
  uint64_t seed;
  SimMethod method;
  const char* bug;
  bool standbys = false;
  bool coordinator_dies = false;
  bool checkpoints = false;
};

constexpr FoundBug kFoundBugs[] = {
    {31959, SimMethod::kLocalSgd, "a barrier skipped an exchange that was promised to a joiner"},
    {5102, SimMethod::kAsyncSgd, "a server cut off while the job closed was not awaited"},
    {12892, SimMethod::kSlimDp,
     "values did not weigh where a lost worker's push of all entries had not come"},
    {14621, SimMethod::kSlimDp, "a broken connection brought a proposal that was settled long ago"},
    {70, SimMethod::kSlimDpAsynchronous, "a core's selection weighed values that had moved on"},
    {2, SimMethod::kSlimDp, "a standby knew nothing of what had been asked of the first core",
     true},
    {190, SimMethod::kSlimDp, "a server that came anew was not asked what it had missed", true},
    {3100507, SimMethod::kSlimDpAsynchronous,
     "a standby began a selection that its leader was too busy to begin", true},
    {816, SimMethod::kSlimDpAsynchronous,
     "others counted by a selection that the standby had not begun", true},
    {119, SimMethod::kSlimDpAsynchronous,
     "a standby was not told the keys of a core without entries", true},
    {83, SimMethod::kSoftsync,
     "a shard lost before the start was nobody's, though its host was back", true},
    {71, SimMethod::kLocalSgd, "a host was told what a process before it was to lead", true, true},
    {392, SimMethod::kSsp, "a call was given the answer to the one that it had replaced", false,
     true},
    {17, SimMethod::kDataParallel,
     "a server that was started again told its members that they are none", false, false, true},
    {45, SimMethod::kLocalSgd, "a silent server was forgotten when another one was replaced", false,
     false, true},
    {16, SimMethod::kSlimDp, "servers that had yet to go back were heard on the next core", false,
     false, true},
    {93, SimMethod::kIst, "a worker that came while the job was paused waited for nobody", false,
     false, true},
    {30, SimMethod::kAsyncSgd, "a later checkpoint had an earlier name", false, false, true},
    {203, SimMethod::kSoftsync, "a slow file was of an epoch that was forgotten", false, false,
     true},
    {1158, SimMethod::kAsyncSgd,
     "one that took a rank wrote to a checkpoint that was being committed", false, false, true},
    {1126, SimMethod::kSsp,
     "that a checkpoint cannot be read was said once, over a connection that broke", false, false,
     true},
    {202, SimMethod::kSsp, "the checkpoint that the job went back to had been removed", false,
     false, true},
    {1445, SimMethod::kDilocoQuorum,
     "the last checkpoint waited for a round that nobody could complete", false, false, true},
    {7400007, SimMethod::kLocalSgd,
     "the last checkpoint waited for what only a late joiner had pushed", true, false, true},
    {7400425, SimMethod::kSlimDpAsynchronous,
     "a core was selected by a server that could not go back", false, true, true},
    {7400617, SimMethod::kAsyncSgdDeltas, "a shard whose new leader was lost, too, was not lost",
     true, false, true},
    {7600100, SimMethod::kAsyncSgdDeltas, "a new leader made no copy where the one before it had",
     true, false, true},
    {7500511, SimMethod::kSlimDpAsynchronous,
     "a checkpoint was removed that somebody had yet to read", false, false, true},
    {8200623, SimMethod::kSlimDp, "what a server had restored was taken for its successor's", false,
     false, true},
    {8200571, SimMethod::kSlimDpAsynchronous,
     "what a server had restored was taken for its successor's", false, false, true},
    {8250184, SimMethod::kSlimDp, "a joiner began before the checkpoint that the job went back to",
     false, false, true},
    {8601533, SimMethod::kSsp,
     "who was told that an evaluation is over could be counted at the next one", false, false,
     true},
    {8610673, SimMethod::kSoftsync,
     "a standby that followed before its leader read the checkpoint took over with nothing", true,
     false, true},
    {8660613, SimMethod::kSlimDpAsynchronous,
     "the checker took the values of a leader that was given up for those of a selection", true,
     false, true},
    {8500371, SimMethod::kDilocoQuorum,
     "a leader that was given up put its file in its successor's place", true, true, true},
    {7500364, SimMethod::kSlimDp, "what was not kept two coordinators ago was not missed", true,
     true, true},
};

TEST_CASE("seeds that found a bug pass", "[sim]") {
  for (const FoundBug& found : kFoundBugs) {
    // As there was no other model then.
    const SimOutcome outcome =
        SimJob({found.seed, found.method, Mutation::kNone, true, found.standbys,
                found.coordinator_dies, found.checkpoints, /*plain=*/true})
            .Run();
    INFO(NameOf(found.method) << ": " << found.bug << "; " << Replay(found.seed));
    INFO(outcome.violation.value_or(""));
    CHECK_FALSE(outcome.violation.has_value());
  }
}

TEST_CASE("without faults every job finishes and loses nobody", "[sim]") {
  for (const SimMethod method : kMethods) {
    for (const bool standbys : {false, true}) {
      const uint64_t count = standbys || TakesLong(method) ? SeedsOf(100) : SeedsOf(300);
      const SimOutcome total = RunAll(method, /*faults=*/false, standbys, count);
      CHECK(total.finished);
      CHECK(total.judged);
      CHECK(total.lost == 0);
      CHECK(total.partial_pushes == 0);
      CHECK(total.takeovers == 0);
    }
  }
}

TEST_CASE("without faults checkpoints are made, and nothing goes back to one", "[sim]") {
  constexpr uint64_t kJobs = 20;
  for (const SimMethod method : kMethods) {
    const SimOutcome total = RunAll(method, /*faults=*/false, /*standbys=*/false, kJobs,
                                    /*coordinator_dies=*/false, /*checkpoints=*/true);
    INFO(NameOf(method));
    CHECK(total.finished);
    CHECK(total.judged);
    CHECK(total.lost == 0);
    CHECK(total.partial_pushes == 0);
    CHECK(total.rollbacks == 0);
    CHECK(total.checkpoints > 2 * kJobs);
  }
}

TEST_CASE("the same seed gives the same run", "[sim]") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimOutcome first = SimJob({seed, SimMethod::kDataParallel}).Run();
    const SimOutcome second = SimJob({seed, SimMethod::kDataParallel}).Run();
    CHECK(first.fingerprint == second.fingerprint);
    CHECK(first.fingerprint != SimJob({seed + 100, SimMethod::kDataParallel}).Run().fingerprint);
  }
}

// A mutation that no run of so many objects to is one that the checker cannot see. With --seeds it is said
// which seed was the first.
constexpr uint64_t kMutationSeeds = 400;

struct Broken {
  Mutation mutation;
  SimMethod method;
  const char* words;
  bool standbys = false;
  bool coordinator_dies = false;
  bool checkpoints = false;
  // One that the checker has objected to, which is tried before all others.
  uint64_t known_seed = 1;
};

TEST_CASE("the checker objects to every mutation", "[sim][mutation]") {
  const std::vector<Broken> all = {
      {Mutation::kAppliesDuplicates, SimMethod::kAsyncSgd, "by the updates folded"},
      {Mutation::kCountsTwice, SimMethod::kDataParallel, "by the updates folded"},
      {Mutation::kCountsTwice, SimMethod::kAsyncSgdDeltas, "by the updates folded"},
      {Mutation::kPolicyForgetsRemoval, SimMethod::kDataParallel, "waits for"},
      {Mutation::kServerForgetsRemoval, SimMethod::kAsyncSgd, "removed member"},
      {Mutation::kForgetsRests, SimMethod::kSoftsync, "never committed"},
      {Mutation::kForgetsSavedStates, SimMethod::kDataParallel, "by the updates folded", false,
       false, true},
      {Mutation::kForgetsSavedStates, SimMethod::kDiloco, "by the updates folded", false, false,
       true},
      {Mutation::kMisreportsRemoved, SimMethod::kLocalSgd, "partial pushes are"},
      {Mutation::kCountsOneMore, SimMethod::kSsp, " examples, want "},
      {Mutation::kReadsTwice, SimMethod::kLocalSgd, "is also that of worker"},
      {Mutation::kScoresTwice, SimMethod::kLocalSgd, "is also that of member"},
      {Mutation::kEvaluatesEarly, SimMethod::kAsyncSgd, "as others score", false, false, false, 18},
      {Mutation::kLeavesEarly, SimMethod::kAsyncSgd, "with steps to do"},
      {Mutation::kLeavesEarly, SimMethod::kLocalSgd, "finished "},
      {Mutation::kTicksEarly, SimMethod::kLocalSgd, "): it was heard"},
      {Mutation::kTicksEarly, SimMethod::kSsp, ": the server was heard"},
      {Mutation::kTicksEarly, SimMethod::kAsyncSgd, "another one had all that it had", true},
      {Mutation::kServerForgetsRemoval, SimMethod::kLocalSgd, ""},
      {Mutation::kReadsEarly, SimMethod::kDataParallel, "contains exchange"},
      {Mutation::kForgetsPromise, SimMethod::kDataParallel, "", false, false, false, 21},
      {Mutation::kLosesStaged, SimMethod::kDataParallel, "stuck"},
      {Mutation::kLosesStaged, SimMethod::kAsyncSgd, ""},
      {Mutation::kReadsEarly, SimMethod::kSsp, "its gap to member"},
      {Mutation::kReadsEarly, SimMethod::kDilocoQuorum, " is open"},
      {Mutation::kForgetsRests, SimMethod::kSsp, "", false, false, false, 326},
      {Mutation::kForgetsRests, SimMethod::kDilocoQuorum, ""},
      {Mutation::kWeighsAlike, SimMethod::kSoftsyncInverse, "by the updates folded"},
      {Mutation::kPolicyForgetsRemoval, SimMethod::kSsp, "waits for"},
      {Mutation::kPolicyForgetsRemoval, SimMethod::kDilocoQuorum, "waits for"},
      {Mutation::kForgetsDepartedSites, SimMethod::kIst, "cut in two ways"},
      {Mutation::kForgetsPromise, SimMethod::kIst, ""},
      {Mutation::kServerForgetsRemoval, SimMethod::kIst, ""},
      {Mutation::kCountsTwice, SimMethod::kIst, "by the updates folded"},
      {Mutation::kLosesStaged, SimMethod::kIst, "stuck"},
      {Mutation::kCountsTwice, SimMethod::kSlimDp, "by the updates folded"},
      {Mutation::kForgetsPromise, SimMethod::kSlimDp, "", false, false, false, 31},
      {Mutation::kTakesAllTies, SimMethod::kSlimDp, "not the entries of the largest significance"},
      {Mutation::kTakesAllTies, SimMethod::kSlimDpAsynchronous, "not the entries of the largest"},
      {Mutation::kSaysReportsOnce, SimMethod::kSlimDp, "stuck", false, false, false, 22},
      {Mutation::kReadsEarly, SimMethod::kSlimDp, "contains exchange"},
      {Mutation::kAppliesDuplicates, SimMethod::kSlimDpAsynchronous, ""},
      {Mutation::kAcknowledgesEarly, SimMethod::kLocalSgd, "which was acknowledged", true, false,
       false, 17},
      {Mutation::kAcknowledgesEarly, SimMethod::kAsyncSgd, "which was acknowledged", true, false,
       false, 175},
      {Mutation::kTakesOldTerm, SimMethod::kLocalSgd, "a leader of old acknowledged", true},
      {Mutation::kTakesOldTerm, SimMethod::kAsyncSgd, "a leader of old acknowledged", true},
      {Mutation::kLeadsUnsynced, SimMethod::kLocalSgd, "which was acknowledged", true, false, false,
       124},
      {Mutation::kNeverCopies, SimMethod::kSlimDp, "no standbys long after", true, false, false,
       20},
      {Mutation::kNeverCopies, SimMethod::kSlimDpAsynchronous, "no standbys long after", true,
       false, false, 193},
      {Mutation::kTellsUnkept, SimMethod::kAsyncSgd, "was refused", false, true, false, 27},
      {Mutation::kTellsUnkept, SimMethod::kLocalSgd, "", false, true, false, 23},
      {Mutation::kTellsUnkept, SimMethod::kLocalSgd, "", true, true},
      {Mutation::kForgetsTime, SimMethod::kLocalSgd, "train_seconds fell", false, true},
      {Mutation::kCopiesLate, SimMethod::kLocalSgd, "copied for a checkpoint: contains", false,
       false, true},
      {Mutation::kCopiesLate, SimMethod::kIst, "copied for a checkpoint", false, false, true},
      {Mutation::kSavesLate, SimMethod::kDataParallel, "checkpoint of step", false, false, true},
      {Mutation::kSavesAhead, SimMethod::kLocalSgdOverlapped, "checkpoint of step", false, false,
       true},
      {Mutation::kGoesOnAfterRestore, SimMethod::kDiloco, "version is", false, false, true},
      {Mutation::kGoesOnAfterRestore, SimMethod::kSsp, "version is", false, false, true},
      {Mutation::kForgetsSavedStates, SimMethod::kSlimDp, "not the entries", false, false, true},
      {Mutation::kCountsTwice, SimMethod::kSoftsync, "by the updates folded", true, true, true},
      {Mutation::kForgetsHeld, SimMethod::kDataParallel, "it holds back", false, false, true},
      {Mutation::kForgetsHeld, SimMethod::kSlimDp, "it holds back", false, false, true},
      {Mutation::kForgetsHeld, SimMethod::kAsyncSgd, "it holds back", true, true, true, 104},
      {Mutation::kSavesHeldLate, SimMethod::kLocalSgd, "it holds back", false, false, true, 57},
      {Mutation::kEncodesAgain, SimMethod::kDataParallel, "has other bytes"},
      {Mutation::kForgetsFlush, SimMethod::kSsp, "with something held back"},
      {Mutation::kMixesParameters, SimMethod::kLocalSgd, "and a reader sees"},
      {Mutation::kCutsBits, SimMethod::kIst, "as bf16"},
      {Mutation::kRoundsForEach, SimMethod::kDataParallel, "differs from another worker's", false,
       false, false, 277},
  };
  for (const Broken& broken : all) {
    std::string seen;
    bool objected = false;
    uint64_t tried = 0;
    for (uint64_t seed = 0; seed <= kMutationSeeds && !objected; ++seed) {
      tried = seed == 0 ? broken.known_seed : seed;
      const SimOutcome outcome =
          SimJob({tried, broken.method, broken.mutation, true, broken.standbys,
                  broken.coordinator_dies, broken.checkpoints})
              .Run();
      if (!outcome.violation.has_value()) continue;
      seen = *outcome.violation;
      objected = seen.find(broken.words) != std::string::npos;
    }
    INFO(NameOf(broken.method) << " with mutation " << static_cast<int>(broken.mutation)
                               << ", wanted \"" << broken.words << "\", last objection: " << seen);
    CHECK(objected);
    if (ChosenSeeds().chosen) {
      std::cout << "mutation " << static_cast<int>(broken.mutation) << " of "
                << NameOf(broken.method) << ": seed " << tried << ", " << seen << std::endl;
    }
  }
}

}  // namespace
}  // namespace tessera

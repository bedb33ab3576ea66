#include "server/control/members/job_stage.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

JobStage Reloaded(const JobStage& stage) {
  v1::MembershipState state;
  stage.Save(&state);
  JobStage loaded;
  loaded.Load(state);
  v1::MembershipState again;
  loaded.Save(&again);
  CHECK(state.SerializeAsString() == again.SerializeAsString());
  return loaded;
}

TEST_CASE("a job gathers, runs, pauses and gathers again, and is saved in every stage",
          "[control]") {
  JobStage stage;
  CHECK_FALSE((Reloaded(stage).started() || Reloaded(stage).paused()));
  stage.Start();
  CHECK((Reloaded(stage).started() && !Reloaded(stage).paused()));
  stage.Pause();
  CHECK((Reloaded(stage).started() && Reloaded(stage).paused()));
  stage.Resume();
  CHECK((stage.started() && !stage.paused()));
  stage.Pause();
  stage.GoBack();
  CHECK_FALSE((Reloaded(stage).started() || Reloaded(stage).paused()));
}

TEST_CASE("the first failure of a job is the one that is told", "[control]") {
  JobStage stage;
  CHECK_FALSE(Reloaded(stage).failure().has_value());
  stage.Fail("server 1 is gone");
  const uint64_t changes = stage.changes();
  stage.Fail("server 2 is gone");
  CHECK(stage.changes() == changes);
  CHECK(Reloaded(stage).failure() == "server 1 is gone");
}

TEST_CASE("a job that is closed remembers what servers were told of its failure", "[control]") {
  JobStage finished, failed;
  CHECK_FALSE(Reloaded(finished).closed());
  finished.Close("");
  failed.Close("all workers are gone");
  CHECK((Reloaded(finished).closed() && Reloaded(finished).closed_failure().empty()));
  CHECK(Reloaded(failed).closed_failure() == "all workers are gone");
}

}  // namespace
}  // namespace tessera

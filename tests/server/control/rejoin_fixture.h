// What tests of going back to a checkpoint share: a job that has one.
#ifndef TESSERA_TESTS_SERVER_CONTROL_REJOIN_FIXTURE_H_
#define TESSERA_TESTS_SERVER_CONTROL_REJOIN_FIXTURE_H_

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tests/server/control/control_fixture.h"

namespace tessera {

// A job of two that has a checkpoint of step 10.
inline JobFacts RejoinFacts() {
  JobFacts facts = ControlFixture::Facts(2, 2);
  facts.epochs = 0;
  facts.steps = 1000;
  facts.checkpoints = true;
  facts.checkpoint_every = 10;
  Manifest model;
  model.parameters = {{"w", 4, 2, false, 1}};
  model.model_parameters = 1;
  model.shards.resize(2);
  facts.model_manifest = std::make_shared<const Manifest>(std::move(model));
  return facts;
}

// All members have written their files.
inline void MakeCheckpoint(ControlFixture* control, uint64_t members = 2) {
  control->Disk();
  control->StepAll();
  const uint64_t number = control->servers[0].order.mark().number();
  control->Part(0);
  control->Part(1);
  for (uint64_t member = 1; member <= members; ++member) {
    REQUIRE(control->Saved(member, number, 10, 10).ok());
  }
  control->Disk();
}

// Another process of server 1 comes, and has yet to read the checkpoint.
inline void AttachAnew(ControlFixture* control) {
  control->coordinator->Detach(ShardId(1), control->servers[1].hello.life(), control->now);
  control->servers[1].hello.set_life(4711);
  control->servers[1].inbox.clear();
  REQUIRE(control->Attach(1).ok());
}

inline void ReplaceServer(ControlFixture* control) {
  AttachAnew(control);
  control->StepAll();
}

inline bool IsAdmitted(ControlFixture* control, uint64_t member) {
  const auto reply = control->Join(member);
  REQUIRE(reply.ok());
  return reply->admitted();
}

// An evaluation by these members, from the first arrival to the last score.
inline void Evaluate(ControlFixture* control, const std::vector<uint64_t>& members, uint64_t step) {
  uint64_t attempt = 0;
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    for (const uint64_t member : members) {
      REQUIRE(control->Evaluate(member, stage, step, attempt).ok());
    }
    for (const uint64_t member : members) {
      const auto answer = control->Answer(member);
      REQUIRE(answer);
      REQUIRE(answer->ok());
      attempt = (**answer).attempt();
    }
  }
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_CONTROL_REJOIN_FIXTURE_H_

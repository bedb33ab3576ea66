// What tests of going back to a checkpoint share: a job that has one.
#ifndef TESSERA_TESTS_SERVER_CONTROL_REJOIN_FIXTURE_H_
#define TESSERA_TESTS_SERVER_CONTROL_REJOIN_FIXTURE_H_

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

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

inline void MakeCheckpoint(ControlFixture* control) {
  control->Disk();
  control->StepAll();
  const uint64_t number = control->servers[0].order.mark().number();
  control->Part(0);
  control->Part(1);
  REQUIRE(control->Saved(1, number, 10, 10).ok());
  REQUIRE(control->Saved(2, number, 10, 10).ok());
  control->Disk();
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_CONTROL_REJOIN_FIXTURE_H_

#include "worker/replica/tailed_replica.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/replica/subnet_memory.h"

namespace tessera {
namespace {

v1::Job JobOf(int workers) {
  v1::Job job;
  *job.mutable_model() = ModelOf("4 linear:9 norm relu linear:7 norm relu linear-:3 norm- softmax");
  job.set_seed(11);
  job.mutable_train()->set_batch_size(8);
  job.mutable_train()->set_precision("f32");
  v1::Sgd* const sgd = job.mutable_train()->mutable_optimizer()->mutable_sgd();
  sgd->set_learning_rate(0.1);
  sgd->set_momentum(0.9);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->mutable_servers()->set_count(2);
  job.mutable_method()->mutable_ist()->set_local_steps(5);
  job.mutable_method()->mutable_ist()->set_tail_steps(5);
  return job;
}

Dataset Data(int rows) {
  const Rows random(ModelOf("4 linear:3 softmax"), rows, 1);
  Table table;
  table.rows = rows;
  table.features = 4;
  table.values = F32Values(random.inputs);
  table.labels = Classes(random.labels);
  return Dataset(std::move(table), Normalization(), ModelEnds{4, 3, false});
}

// No two neurons are the same.
void FillValues(const Learner& learner, float value) {
  int entry = 0;
  for (const auto& array : learner.values()) {
    for (float& x : array) x = value * static_cast<float>(++entry % 11 - 4);
  }
}

TEST_CASE("at the switch the subnet is sent and the whole model pulled, which is then both",
          "[replica][subnet][tail]") {
  const v1::Job job = JobOf(2);
  const auto backend = Cpu();
  auto replica = *TailedReplica::Create(job, *RecipeFor(job), Rank(0), Exchange(1), backend.get());
  FillValues(*replica, 1);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(replica->update_keys().subnet->round == 1);
  CHECK(replica->value_keys().subnet->round == 2);
  const Dataset data = Data(16);
  REQUIRE(replica->Train(data, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1}).ok());
  REQUIRE(replica->FormUpdate().ok());

  REQUIRE(replica->BeginTail().ok());
  CHECK(replica->update_keys().subnet->round == 1);
  const std::vector<float> sent(replica->update()[0].begin(), replica->update()[0].end());
  CHECK_FALSE(replica->value_keys().subnet.has_value());
  REQUIRE(replica->value_keys().slices.size() == 2);
  CHECK(replica->values()[0].size() == 4 * 9);
  FillValues(*replica, 0.5f);
  CHECK(std::vector<float>(replica->update()[0].begin(), replica->update()[0].end()) == sent);
  REQUIRE(replica->AdoptValues().ok());
  CHECK_FALSE(replica->update_keys().subnet.has_value());

  // What is sent from now on is the change.
  REQUIRE(replica->FormUpdate().ok());
  for (const auto& array : replica->update()) {
    for (const float x : array) REQUIRE(x == 0);
  }
  REQUIRE(replica->AdoptValues().ok());
  REQUIRE(replica->Train(data, {0, 1, 2, 3, 4, 5, 6, 7}, {1, 1}).ok());
  REQUIRE(replica->FormUpdate().ok());
  const auto& change = replica->update()[0];
  CHECK(std::any_of(change.begin(), change.end(), [](float x) { return x != 0; }));
}

TEST_CASE("one that joins in the tail trains no subnet", "[replica][subnet][tail]") {
  const v1::Job job = JobOf(2);
  const auto backend = Cpu();
  auto replica = *TailedReplica::Create(job, *RecipeFor(job), Rank(1), Exchange(9), backend.get());
  REQUIRE(replica->BeginTail().ok());
  FillValues(*replica, 0.5f);
  REQUIRE(replica->AdoptValues().ok());
  CHECK_FALSE(replica->update_keys().subnet.has_value());
}

TEST_CASE("at the switch both are held, and afterwards the whole model alone",
          "[replica][subnet][tail][memory]") {
  v1::Job job = JobOf(1);
  job.mutable_cluster()->set_evaluation_memory(int64_t{1} << 30);
  const Recipe recipe = *RecipeFor(job);
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  CountingBackend small(*cpu);
  auto replica = *TailedReplica::Create(job, recipe, Rank(0), Exchange(1), &backend);
  CHECK(replica->pulls_apart());
  REQUIRE(replica->AdoptValues().ok());
  const SubnetMemory memory = *PlanSubnetMemory(job, recipe, {}, {0, 0});
  CHECK(backend.counting.held == memory.total() - memory.batches);
  REQUIRE(replica->BeginTail().ok());
  const int64_t buffers = BatchRows::MemoryNeeded(job, *ShapeOf(job.model()), {});
  const int64_t whole = *Replica::MemoryNeeded(job, TailOf(recipe), 0) - buffers;
  CHECK(backend.counting.held == memory.total() - memory.batches + whole);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(backend.counting.held == whole);

  // Where there is no room for it the switch is a status.
  replica = *TailedReplica::Create(job, recipe, Rank(0), Exchange(1), &small);
  REQUIRE(replica->AdoptValues().ok());
  small.counting.limit = small.counting.held + 512;
  CHECK(replica->BeginTail().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("where a subnet is pulled into its own memory, the whole model is not",
          "[replica][subnet][tail][memory]") {
  const v1::Job job = JobOf(2);
  const auto backend = Cpu();
  SubnetMemory memory = *PlanSubnetMemory(job, *RecipeFor(job), {}, {16, 16}, 0);
  REQUIRE_FALSE(memory.pulls_apart);
  auto replica =
      *TailedReplica::Create(job, *RecipeFor(job), Rank(0), Exchange(1), backend.get(), {}, memory);
  CHECK_FALSE(replica->pulls_apart());
  REQUIRE(replica->AdoptValues().ok());
  REQUIRE(replica->BeginTail().ok());
  CHECK(replica->pulls_apart());
  CHECK(replica->values()[0].data() != replica->update()[0].data());
}

}  // namespace
}  // namespace tessera

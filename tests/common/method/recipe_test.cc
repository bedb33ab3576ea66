#include "common/method/recipe.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

v1::Job WithSgd(double learning_rate) {
  v1::Job job;
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_learning_rate(learning_rate);
  return job;
}

// w after one committed update of mean u, from w = 1.
float Applied(const Recipe& recipe, float u) {
  float w = 1;
  recipe.make_rule()->Apply(&u, 1.0f, &w, &w, nullptr, 1);
  return w;
}

bool IsBarrier(const Recipe& recipe) { return recipe.make_policy()->Collecting() == Exchange(1); }

TEST_CASE("data_parallel sends gradients through a barrier to the optimizer", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_data_parallel();
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  CHECK(recipe->name == "data_parallel");
  CHECK(recipe->payload == PayloadKind::kGradient);
  CHECK(recipe->local_steps == 1);
  CHECK(recipe->lockstep);
  CHECK(IsBarrier(*recipe));
  CHECK(Applied(*recipe, 4) == -1.0f);
}

TEST_CASE("local_sgd sends deltas through a barrier and adds them", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_local_sgd()->set_local_steps(20);
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  CHECK(recipe->payload == PayloadKind::kDelta);
  CHECK(recipe->local_steps == 20);
  CHECK(recipe->lockstep);
  CHECK(IsBarrier(*recipe));
  CHECK(Applied(*recipe, 4) == 5.0f);
}

TEST_CASE("async_sgd sends gradients of one step and deltas of several, and nobody waits",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::AsyncSgd& keys = *job.mutable_method()->mutable_async_sgd();
  keys.set_local_steps(1);
  keys.mutable_staleness()->mutable_constant()->set_scale(0.25);
  const absl::StatusOr<Recipe> gradients = RecipeFor(job);
  REQUIRE(gradients.ok());
  CHECK(gradients->payload == PayloadKind::kGradient);
  CHECK_FALSE(gradients->lockstep);
  CHECK_FALSE(IsBarrier(*gradients));
  CHECK(Applied(*gradients, 4) == -1.0f);
  const Verdict verdict =
      gradients->make_policy()->OnPush({MemberId(1), Exchange(1), Version(0), Version(9)});
  CHECK(verdict.commit);
  CHECK(verdict.weight == 0.25f);

  keys.set_local_steps(3);
  const absl::StatusOr<Recipe> deltas = RecipeFor(job);
  REQUIRE(deltas.ok());
  CHECK(deltas->payload == PayloadKind::kDelta);
  CHECK(Applied(*deltas, 4) == 5.0f);
}

TEST_CASE("every shard gets a policy and a rule of its own", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_data_parallel();
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  const auto first = recipe->make_policy();
  const auto second = recipe->make_policy();
  first->SetMembers({Generation(1), {{MemberId(1), Rank(0), Exchange(1)}}});
  first->OnPush({MemberId(1), Exchange(1), Version(0), Version(0)});
  CHECK(first->Collecting() == Exchange(2));
  CHECK(second->Collecting() == Exchange(1));
}

TEST_CASE("momentum reaches the shard's rule", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_data_parallel();
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  CHECK(RecipeFor(job)->make_rule()->state_count() == 1);
}

TEST_CASE("a method that this build lacks is unimplemented, not a crash", "[method]") {
  v1::Job job = WithSgd(0.5);
  CHECK(RecipeFor(job).status().code() == absl::StatusCode::kUnimplemented);
  job.mutable_method()->mutable_layer_separation();
  CHECK(RecipeFor(job).status().code() == absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tessera

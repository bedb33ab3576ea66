#include "deploy/cli/plan/traffic.h"

#include <catch2/catch.hpp>

#include "common/config/job_digest.h"
#include "common/method/recipe.h"

namespace tessera {
namespace {

using Certainty = TrafficForecast::Certainty;

// Both ways, of a model with hidden layers of 12 and 8 neurons.
Certainty CertaintyOf(const std::string& method, int workers) {
  v1::Job job = JobOfText(
      "model.input.0=5\nmodel.layers.0=linear\nmodel.layers.0.linear.units=12\n"
      "model.layers.1=relu\nmodel.layers.2=linear\nmodel.layers.2.linear.units=8\n"
      "model.layers.3=linear\nmodel.layers.3.linear.units=3\ntrain.optimizer=sgd\n" +
      method);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->mutable_servers()->set_count(2);
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), *recipe);
  REQUIRE(shape.ok());
  const Certainty push = PushForecast(job, *recipe, *shape).certainty;
  CHECK(PullForecast(job, *recipe, *shape).certainty == push);
  return push;
}

TEST_CASE("bytes of subnets are exact where all parts have one size", "[traffic]") {
  for (const int workers : {1, 2, 4}) {
    CHECK(CertaintyOf("method=ist\n", workers) == Certainty::kExact);
    CHECK(CertaintyOf("method=ist\nmethod.ist.parts=\"by_speed\"\n", workers) == Certainty::kAbout);
  }
  // 12 neurons make three parts, 8 do not.
  for (const int workers : {3, 5}) {
    CHECK(CertaintyOf("method=ist\n", workers) == Certainty::kAbout);
    CHECK(CertaintyOf("method=local_sgd\n", workers) == Certainty::kExact);
  }
}

}  // namespace
}  // namespace tessera

#include "server/checkpoint/restore.h"

#include <catch2/catch.hpp>

#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "common/config/job_digest.h"
#include "common/method/recipe.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

using Change = std::function<void(v1::Job*)>;

// What a job's servers write, or want to find.
Manifest ManifestFor(const Change& change) {
  v1::Job job;
  change(&job);
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  Manifest manifest = ManifestOf(2);
  manifest.method = recipe->name;
  manifest.states = static_cast<int64_t>(ServerStates(*recipe).size());
  manifest.job_text = CanonicalJobText(job);
  return manifest;
}

void Momentum(v1::Job* job) {
  job->mutable_method()->mutable_data_parallel();
  job->mutable_train()->mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
}
void Adagrad(v1::Job* job) {
  job->mutable_method()->mutable_data_parallel();
  job->mutable_train()->mutable_optimizer()->mutable_adagrad();
}
void Adam(v1::Job* job) {
  job->mutable_method()->mutable_data_parallel();
  job->mutable_train()->mutable_optimizer()->mutable_adam()->set_beta1(0.9);
}
void Diloco(v1::Job* job) {
  job->mutable_train()->mutable_optimizer()->mutable_adam();
  job->mutable_method()->mutable_diloco()->set_outer_momentum(0.9);
}
void AsyncDiloco(v1::Job* job) {
  Diloco(job);
  job->mutable_method()->mutable_diloco()->set_asynchronous(true);
}
void SlimDp(v1::Job* job) {
  job->mutable_train()->mutable_optimizer()->mutable_sgd();
  job->mutable_method()->mutable_slim_dp()->set_alpha(0.5);
}

TEST_CASE("as many states of another meaning are refused, with both names", "[restore]") {
  struct Case {
    Change before, after;
    std::string words;
  };
  const Case c = GENERATE(
      Case{Momentum, Diloco, "momentum (data_parallel), want outer_momentum (diloco)"},
      Case{SlimDp, Momentum, "core (slim_dp), want momentum (data_parallel)"},
      Case{Momentum, Adagrad, "momentum (data_parallel), want squares (data_parallel)"},
      Case{AsyncDiloco, Adam,
           "outer_momentum, buffer (diloco), want mean, squares (data_parallel)"},
      Case{Diloco, AsyncDiloco, "outer_momentum (diloco), want outer_momentum, buffer (diloco)"});
  const absl::Status status = CheckRestorable(ManifestFor(c.before), ManifestFor(c.after));
  CHECK(absl::IsFailedPrecondition(status));
  INFO(status.message());
  CHECK(absl::StrContains(status.message(), c.words));
  CHECK(absl::StrContains(status.message(), "go on with the method and the optimizer"));
}

TEST_CASE("a job goes on with other numbers, and with another method of the same states",
          "[restore]") {
  const auto other_rate = [](v1::Job* job) {
    Adam(job);
    job->mutable_train()->mutable_optimizer()->mutable_adam()->set_beta1(0.5);
    job->mutable_cluster()->set_workers(7);
  };
  const auto adamw = [](v1::Job* job) {
    job->mutable_method()->mutable_quant_dp();
    job->mutable_train()->mutable_optimizer()->mutable_adamw();
  };
  const auto other_core = [](v1::Job* job) {
    SlimDp(job);
    job->mutable_method()->mutable_slim_dp()->set_core_every(9);
  };
  CHECK(CheckRestorable(ManifestFor(Adam), ManifestFor(other_rate)).ok());
  CHECK(CheckRestorable(ManifestFor(Adam), ManifestFor(adamw)).ok());
  CHECK(CheckRestorable(ManifestFor(SlimDp), ManifestFor(other_core)).ok());
}

TEST_CASE("states of a job that this build does not know are refused", "[restore]") {
  Manifest saved = ManifestFor(Momentum);
  saved.job_text = "tessera job 1\nmethod=haste\n";
  const absl::Status status = CheckRestorable(saved, ManifestFor(Momentum));
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), "1 of a job that this build does not know"));
}

}  // namespace
}  // namespace tessera

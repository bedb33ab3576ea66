#include "server/checkpoint/restore.h"

#include <catch2/catch.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "common/config/job_digest.h"
#include "common/method/recipe.h"
#include "server/control/saved_job.h"
#include "server/shard/shard.h"
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
  for (CheckpointParameter& parameter : manifest.parameters) parameter.export_factor = 1;
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

TEST_CASE("of another job the keys are named that its model comes from, and no others",
          "[restore]") {
  const auto faster = [](v1::Job* job) {
    Momentum(job);
    job->mutable_cluster()->set_workers(7);
    job->mutable_train()->set_batch_size(99);
  };
  const absl::Status status = CheckRestorable(ManifestFor(Diloco), ManifestFor(faster));
  INFO(status.message());
  CHECK(absl::StrContains(status.message(), ": method is data_parallel, want diloco; "));
  CHECK_FALSE(absl::StrContains(status.message(), "cluster.workers"));
  CHECK_FALSE(absl::StrContains(status.message(), "batch_size"));
  const auto slower = [&](v1::Job* job) {
    faster(job);
    job->mutable_train()->set_batch_size(9);
  };
  CHECK(ChangedKeys(ManifestFor(slower), ManifestFor(faster)) ==
        std::vector<std::string>{"train.batch_size was 9 and is 99"});
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

TEST_CASE("values of the whole model do not become those of subnets unsaid, nor the other way",
          "[restore]") {
  const auto subnets = [](v1::Job* job) { job->mutable_method()->mutable_ist()->set_cut("all"); };
  const auto local = [](v1::Job* job) { job->mutable_method()->mutable_local_sgd(); };
  const auto optimizer = [](const Change& change) {
    return [change](v1::Job* job) {
      job->mutable_train()->mutable_optimizer()->mutable_sgd();
      change(job);
    };
  };
  const Manifest whole = ManifestFor(optimizer(local));
  Manifest cut = ManifestFor(optimizer(subnets));
  CHECK(CheckRestorable(whole, cut).ok());     // All sums have a batch norm behind them.
  CHECK(CheckRestorable(cut, cut, {0}).ok());  // One site.
  const absl::Status becomes_cut = CheckRestorable(whole, cut, {0});
  cut.parameters[0].export_factor = 0.25;
  CHECK(CheckRestorable(cut, cut, {0}).ok());
  const absl::Status becomes_whole = CheckRestorable(cut, whole);
  for (const absl::Status& status : {becomes_cut, becomes_whole}) {
    INFO(status.message());
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(absl::StrContains(status.message(), "name that file in model.init"));
  }
  CHECK(absl::StrContains(becomes_whole.message(),
                          "are those of subnets (ist), want the whole model's (local_sgd)"));
}

TEST_CASE("states of a job that this build does not know are refused", "[restore]") {
  Manifest saved = ManifestFor(Momentum);
  saved.job_text = "tessera job 1\nmethod=haste\n";
  const absl::Status status = CheckRestorable(saved, ManifestFor(Momentum));
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), "1 of a job that this build does not know"));
}

// What the manifest's parameters are, in one shard.
ModelShape ShapeOf(const Manifest& manifest) {
  ModelShape shape;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    shape.parameters.push_back({parameter.name, parameter.rows, parameter.columns, false, 0, 0, 0});
    shape.size += parameter.rows * parameter.columns;
  }
  return shape;
}

TEST_CASE("what asynchronous diloco has in its buffer weighs the same with other workers",
          "[restore]") {
  const int64_t workers = GENERATE(2, 4, 12);
  const auto job_of = [](int64_t count) {
    v1::Job job;
    AsyncDiloco(&job);
    job.mutable_cluster()->set_workers(count);
    return job;
  };
  Manifest manifest = ManifestFor([&](v1::Job* job) { *job = job_of(4); });
  manifest.coordinator = FormatSavedJob({});
  const std::string folder = EmptyFolder();
  REQUIRE(SaveShards(folder, &manifest).ok());
  WriteManifest(folder, manifest);
  const auto checkpoint = Checkpoint::Open(folder);
  REQUIRE(checkpoint.ok());

  const absl::StatusOr<Recipe> recipe = RecipeFor(job_of(workers));
  REQUIRE(recipe.ok());
  Shard::Options options;
  options.shape = ShapeOf(manifest);
  options.policy = recipe->make_policy();
  options.rule = recipe->make_rule();
  Shard shard(std::move(options));
  REQUIRE(LoadShard(
              **checkpoint, [] { return true; }, &shard)
              .ok());

  REQUIRE(shard.Order({{1, 7}, kCopyAtOnce}).ok());
  const std::optional<ShardCopy> copy = shard.TakeCopy();
  REQUIRE(copy.has_value());
  REQUIRE(copy->states.size() == 2);
  size_t i = 0;
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    for (int64_t row = 0; row < manifest.parameters[p].rows; ++row) {
      for (int64_t column = 0; column < manifest.parameters[p].columns; ++column, ++i) {
        CAPTURE(p, row, column);
        CHECK((*copy->states[0])[i] == SavedValue(manifest, p, 0, row, column));
        // Of the next momentum step it is 1/4 still.
        CHECK((*copy->states[1])[i] / static_cast<float>(workers) ==
              Approx(SavedValue(manifest, p, 1, row, column) / 4));
      }
    }
  }
}

}  // namespace
}  // namespace tessera

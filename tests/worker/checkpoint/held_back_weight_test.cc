// What was held back weighs in another job's pushes what it would have in those of its own.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "common/config/job_digest.h"
#include "common/method/recipe.h"
#include "tests/common/checkpoint/saved_model.h"
#include "worker/checkpoint/worker_saver.h"

namespace tessera {
namespace {

using Method = std::function<void(v1::Method*)>;

constexpr float kHeld = 8;  // of each worker

// Changes of two steps, so that all of them send the same.
v1::Job JobOf(const Method& method, int64_t workers) {
  v1::Job job;
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  job.mutable_cluster()->set_workers(workers);
  method(job.mutable_method());
  return job;
}

Method Softsync(int64_t pushes) {
  return [pushes](v1::Method* method) {
    method->mutable_softsync()->set_local_steps(2);
    method->mutable_softsync()->set_pushes(pushes);
  };
}
void AsyncSgd(v1::Method* method) { method->mutable_async_sgd()->set_local_steps(2); }
void Decentralized(v1::Method* method) { method->mutable_decentralized()->set_local_steps(2); }
void LocalSgd(v1::Method* method) { method->mutable_local_sgd()->set_local_steps(2); }
void Ssp(v1::Method* method) { method->mutable_ssp()->set_local_steps(2); }

// By ranks 0 to members - 1 of `job`.
std::string SavedBy(const v1::Job& job, uint32_t members) {
  const std::string folder = EmptyFolder();
  Manifest manifest = ManifestOf(1);
  manifest.job_text = CanonicalJobText(job);
  manifest.members.clear();
  for (uint32_t rank = 0; rank < members; ++rank) {
    manifest.members.push_back({rank + 5, rank, 20, 400});
  }
  REQUIRE(SaveShards(folder, &manifest).ok());
  for (uint32_t rank = 0; rank < members; ++rank) {
    WorkerCopy copy;
    copy.arrays = {{"residual.0", {kHeld}}};
    const absl::StatusOr<CheckpointFile> file = WriteWorkerFile(folder, Rank(rank), copy);
    REQUIRE(file.ok());
    manifest.files.push_back(*file);
  }
  WriteManifest(folder, manifest);
  return folder;
}

// Of all workers of `job` together.
float TakenUp(const std::string& folder, const v1::Job& job) {
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  float sum = 0;
  for (int64_t rank = 0; rank < job.cluster().workers(); ++rank) {
    WorkerSaver::Options options;
    options.restored = folder;
    options.rank = Rank(static_cast<uint64_t>(rank));
    options.workers = job.cluster().workers();
    options.tell = [](v1::SavedRequest) { return v1::SavedReply(); };
    options.push_weight = recipe->push_weight;
    options.pushes = recipe->pushes;
    options.payload = recipe->payload;
    std::vector<float> held = {0};
    WorkerSaver saver(std::move(options));
    REQUIRE(saver.Load({{{"residual.0", absl::MakeSpan(held)}}, {}, nullptr}).ok());
    sum += held[0];
  }
  return sum;
}

TEST_CASE("what was held back changes the model by as much in a job whose pushes weigh otherwise",
          "[worker_saver]") {
  struct Case {
    Method before;
    int64_t workers_before;
    uint32_t saved;  // members that were left of these
    Method now;
    int64_t workers;
    float factor;
  };
  const Case c = GENERATE(
      // r / 4 before, r / 2 now.
      Case{Softsync(4), 4, 4, Softsync(2), 2, 2.0f / 4},
      Case{Softsync(4), 4, 4, Softsync(1), 4, 1.0f / 4}, Case{Softsync(1), 2, 2, Softsync(4), 4, 4},
      Case{Softsync(2), 4, 4, Softsync(2), 3, 1},
      // Updates were of three pushes, as there were three workers.
      Case{Softsync(4), 4, 3, Softsync(2), 2, 2.0f / 3},
      Case{Softsync(4), 4, 4, AsyncSgd, 4, 1.0f / 4}, Case{AsyncSgd, 2, 2, Softsync(2), 3, 2},
      Case{AsyncSgd, 4, 4, AsyncSgd, 2, 1}, Case{Decentralized, 4, 4, Decentralized, 2, 1},
      Case{AsyncSgd, 4, 4, LocalSgd, 2, 2}, Case{LocalSgd, 4, 3, AsyncSgd, 3, 1.0f / 3},
      Case{LocalSgd, 4, 3, LocalSgd, 2, 2.0f / 3}, Case{Ssp, 4, 3, Ssp, 2, 2.0f / 4});
  CAPTURE(c.workers_before, c.saved, c.workers, c.factor);
  const std::string folder = SavedBy(JobOf(c.before, c.workers_before), c.saved);
  const float before = kHeld * static_cast<float>(c.saved);
  CHECK(TakenUp(folder, JobOf(c.now, c.workers)) == Approx(c.factor * before));
}

}  // namespace
}  // namespace tessera

// What a train loop of one worker needs: its job, one server in this process, rows, a replica.
#ifndef TESSERA_TESTS_WORKER_TRAIN_LONE_WORKER_H_
#define TESSERA_TESTS_WORKER_TRAIN_LONE_WORKER_H_

#include <memory>
#include <string>
#include <vector>

#include "common/method/recipe.h"
#include "kernels/devices.h"
#include "tests/worker/train/in_process_servers.h"
#include "tests/worker/train/loop_job.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"
#include "worker/replica/replica.h"
#include "worker/train/train_loop.h"

namespace tessera {

struct LoneWorker {
  explicit LoneWorker(const std::vector<std::string>& overrides) : job(Job(overrides)) {}

  TrainLoop::Options options() const { return {job, recipe, Rank(0)}; }

  const v1::Job job;
  Recipe recipe = *RecipeFor(job);
  InProcessServers servers{job, recipe, 1, 1};
  const Datasets data = *LoadDatasets(job.data(), {64, 10, false});
  const std::unique_ptr<Backend> backend = *CreateBackend("cpu", 1);
  std::unique_ptr<Replica> replica = *Replica::Create(job, recipe, Rank(0), backend.get());
  InProcessClient client{&servers, MemberId(1), recipe.payload};
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_LONE_WORKER_H_

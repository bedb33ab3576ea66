// What the control plane knows of the job before anybody has joined. Constant after construction.
#ifndef TESSERA_SERVER_CONTROL_JOB_FACTS_H_
#define TESSERA_SERVER_CONTROL_JOB_FACTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/checkpoint/manifest.h"
#include "common/keyset/core_share.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "common/rule/schedule.h"
#include "proto/job.pb.h"
#include "proto/status.pb.h"

namespace tessera {

struct SavedState;  // saved_job.h

// What the coordinator knows of its job before anything happens. It has more fields than other types: it is a list of
// facts that follow from the job's file, each read by the part that it concerns, and changed by nobody.
struct JobFacts {
  std::string name;
  std::string method;
  // In words: who waits for whom, how updates are applied.
  std::string method_description;
  // SHA-256 of the job, hexadecimal.
  std::string digest;
  // The text that the digest is of; empty: that is too long to be sent (common/config/job_difference.h).
  std::string job_text;
  // Empty where nobody said.
  v1::JobOrigin origin;
  std::string version;
  uint64_t layout_hash = 0;
  uint64_t seed = 0;
  // InitialFile::sum of the values that it begins with; 0: they are random, or a checkpoint's.
  uint64_t initial_sum = 0;
  int servers = 1;
  // Workers that the job waits for before it starts.
  int workers = 1;
  // A member that is silent for this long is removed.
  absl::Duration lease_timeout = absl::Seconds(10);
  // The job is one of tensors: workers compute with a model of their own, which scores come from, and rows mean
  // nothing here.
  bool is_of_tensors = false;
  // In a job of tensors, the steps of each epoch; 0: the whole job is one.
  int64_t steps_per_epoch = 0;
  int64_t batch_size = 1;
  // Exactly one of the two is not 0.
  int64_t epochs = 0;
  int64_t steps = 0;
  // An evaluation is due at the end of so many epochs; 0: only when training ends.
  uint64_t evaluate_every = 0;
  // Minibatches between exchanges.
  int64_t local_steps = 1;
  // Members are in lockstep: an exchange's number means one update for all of them.
  bool synchronous = true;
  // A member's exchange tells its step.
  bool aligned = true;
  // Slower workers are given fewer steps between exchanges.
  bool step_budgets = false;
  // Every exchange is a round in which each member trains a part of the model.
  bool subnets = false;
  // Slower members are given smaller parts.
  bool parts_by_speed = false;
  // Exchanges move a core, which servers select together out of so many entries and parameters.
  std::optional<CoreShare> core;
  int64_t entries = 0;
  int parameters = 0;
  // Members that there can be: the least hidden layer has so many neurons. 0: any number.
  int64_t members_max = 0;
  // Every server holds all entries and has the worker of its rank beside it. Servers may come and go
  // while the job runs, but for server 0.
  bool replicated = false;
  // Every shard has a standby on another server (shard_owners.h).
  bool standbys = false;
  // Rank 0 makes so many steps before the others are admitted.
  uint64_t warmup_steps = 0;
  // Nobody can join once the job has begun.
  bool closed_to_joiners = false;
  // Ranks below this one have the data, the others train the layers behind a cut (Recipe::split). 0: all are
  // alike.
  int front_workers = 0;
  // data.partition: every worker's rows are its own.
  bool rows_are_local = false;
  // Slower members are given smaller minibatches.
  bool rows_by_speed = false;
  // Workers hold back what their codec does not send.
  bool holds_back = false;
  // Rows have one label each, which a model may have right.
  bool single_labels = false;
  // A row is a sequence of tokens, each of which is predicted.
  bool predicts_tokens = false;
  // Outputs are scores of classes, so that a row may be right. Otherwise the only output is a number.
  bool predicts_classes = true;
  // Training ends when an evaluation reaches it; 0: off.
  double target_accuracy = 0;
  // A smaller score is better.
  bool minimises = false;
  // How the learning rate changes; nullopt: it does not.
  std::optional<RateSchedule> schedule;
  // The connections are not encrypted.
  bool insecure = true;
  // Checkpoints are written: every so many steps, where that is not 0.
  bool checkpoints = false;
  bool own_disks = false;  // checkpoint.store
  int64_t checkpoint_every = 0;
  // What of a manifest follows from the job. Never nullptr where checkpoints are written.
  std::shared_ptr<const Manifest> model_manifest;
  // The parameters that evaluation multiplies by the mean share (common/keyset/mean_share.h).
  std::vector<int> weights_of_mean_share;
  // What the job goes on from; nullptr: it begins anew.
  std::shared_ptr<const SavedState> restored;

  bool has_data(Rank rank) const {
    return front_workers == 0 || rank.value() < static_cast<uint64_t>(front_workers);
  }
  // Whether training ends with an evaluation of this accuracy, or score. One that is not a number reaches nothing.
  bool ReachesTarget(double accuracy) const {
    if (target_accuracy <= 0) return false;
    return minimises ? accuracy <= target_accuracy : accuracy >= target_accuracy;
  }
};

// kInvalidArgument: they contradict themselves.
absl::Status CheckFacts(const JobFacts& facts);

// `job` is resolved, and `recipe` and `shape` follow from it (common/method/recipe.h).
// Without `restored`.
JobFacts FactsOf(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                 std::string digest);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_JOB_FACTS_H_

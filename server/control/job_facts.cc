#include "server/control/job_facts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/process.h"
#include "common/config/checkpoint_keys.h"
#include "common/config/job_difference.h"
#include "common/config/job_digest.h"
#include "common/keyset/mean_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/losses.h"
#include "common/layout/shard_map.h"
#include "common/layout/tensor_layout.h"
#include "common/method/train_rows.h"

namespace tessera {
namespace {

// Neurons of the least hidden layer, each of which is one worker's at a time; 0: there is none.
int64_t LeastCutWidth(const NeuronGroups& groups) {
  int64_t least = 0;
  for (int group = 0; group < static_cast<int>(groups.widths.size()); ++group) {
    if (!groups.IsCut(group)) continue;
    least = least == 0 ? groups.widths[group] : std::min(least, groups.widths[group]);
  }
  return least;
}

Manifest ModelManifest(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                       const JobFacts& facts) {
  Manifest manifest;
  manifest.job = facts.name;
  manifest.job_digest = facts.digest;
  manifest.job_text = CanonicalJobText(job);
  manifest.method = facts.method;
  manifest.version = facts.version;
  manifest.layout_hash = facts.layout_hash;
  manifest.states = static_cast<int64_t>(ServerStates(recipe).size());
  const Sharding sharding = ShardingOf(recipe, facts.servers);
  for (const ParameterSpec& spec : shape.parameters) {
    manifest.parameters.push_back(
        {spec.name, spec.rows, spec.columns, spec.is_vector, 1, spec.columns_are, spec.is_scalar});
    if (sharding.last == 0) continue;
    manifest.parameters.back().owners =
        sharding.OwnersOf(static_cast<int>(manifest.parameters.size()) - 1);
  }
  // Averaged states come after the model's own.
  manifest.model_parameters =
      static_cast<int64_t>(shape.parameters.size() / (1 + recipe.averaged_states.size()));
  manifest.shards.resize(static_cast<size_t>(facts.servers));
  return manifest;
}

}  // namespace

absl::Status CheckFacts(const JobFacts& facts) {
  if (facts.servers < 1 || facts.workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat("control: servers are ", facts.servers,
                                                   " and workers ", facts.workers,
                                                   ", want at least 1 of each"));
  }
  if ((facts.epochs > 0) == (facts.steps > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("control: epochs are ", facts.epochs,
                                                   " and steps ", facts.steps,
                                                   ", want exactly one of them above 0"));
  }
  if (facts.batch_size < 1 || facts.local_steps < 1 ||
      facts.lease_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "control: batch size is ", facts.batch_size, ", local steps ", facts.local_steps,
        ", lease ", absl::FormatDuration(facts.lease_timeout), ", want all above 0"));
  }
  if (facts.is_of_tensors && (facts.steps < 1 || facts.steps_per_epoch < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("control: steps of a job of tensors are ", facts.steps, ", of an epoch ",
                     facts.steps_per_epoch, ", want at least 1 and 0"));
  }
  return absl::OkStatus();
}

JobFacts FactsOf(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                 std::string digest) {
  const v1::Cluster& cluster = job.cluster();
  JobFacts facts;
  facts.name = job.name();
  facts.method = recipe.name;
  facts.method_description = recipe.description;
  facts.digest = std::move(digest);
  facts.job_text = JobTextToSend(job);
  facts.version = kVersion;
  facts.layout_hash =
      LayoutHash(shape, ShardingOf(recipe, static_cast<int>(cluster.servers().count())));
  facts.seed = job.seed();
  facts.servers = cluster.servers().count();
  facts.workers = cluster.workers();
  facts.lease_timeout = absl::Nanoseconds(cluster.lease_timeout());
  facts.is_of_tensors = IsOfTensors(job.model());
  facts.steps_per_epoch = job.train().steps_per_epoch();
  if (!facts.is_of_tensors) facts.batch_size = job.train().batch_size();
  facts.epochs = job.train().epochs();
  facts.steps = job.train().steps();
  facts.evaluate_every = job.train().evaluate_every();
  facts.local_steps = recipe.local_steps;
  facts.synchronous = recipe.lockstep;
  facts.aligned = recipe.aligned;
  facts.step_budgets = recipe.step_budgets;
  facts.subnets = recipe.subnets;
  facts.parts_by_speed = recipe.parts_by_speed;
  facts.replicated = recipe.placement == Placement::kReplicated;
  facts.standbys = job.cluster().replicas() > 0;
  facts.warmup_steps = static_cast<uint64_t>(recipe.warmup_steps);
  facts.core = recipe.core;
  facts.entries = shape.size;
  facts.parameters = static_cast<int>(shape.parameters.size());
  facts.closed_to_joiners = recipe.closed_to_joiners;
  if (recipe.split) facts.front_workers = recipe.split->front_workers;
  if (recipe.subnets) facts.members_max = LeastCutWidth(GroupsOf(shape, recipe.subnet_rules));
  facts.holds_back = recipe.codecs.holds_back();
  facts.predicts_classes = !LearnsNumbers(job.model(), shape.outputs());
  facts.predicts_tokens = shape.vocabulary > 0;
  facts.single_labels = HasSingleLabels(job.model(), shape.outputs());
  facts.insecure = job.security().certificate().empty();
  facts.rows_are_local = job.data().partition() == "local";
  facts.rows_by_speed = DealsBySpeed(job);
  facts.target_accuracy = job.train().target_accuracy();
  facts.minimises = job.model().evaluation() == "minimise";
  const RateSchedule schedule(job.train().schedule());
  if (!schedule.is_constant()) facts.schedule = schedule;
  facts.checkpoints = !job.checkpoint().directory().empty();
  facts.own_disks = HasOwnDisks(job);
  facts.checkpoint_every = job.checkpoint().every_steps();
  facts.model_manifest = std::make_shared<const Manifest>(ModelManifest(job, recipe, shape, facts));
  if (recipe.subnets) {
    facts.weights_of_mean_share = WeightsOfMeanShare(shape, GroupsOf(shape, recipe.subnet_rules));
  }
  return facts;
}

}  // namespace tessera

#include "server/checkpoint/restore.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/slices.h"
#include "common/config/job_difference.h"
#include "common/config/job_digest.h"
#include "common/method/recipe.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace tessera {
namespace {

absl::StatusOr<SavedJob> SavedJobOf(const Manifest& manifest, const std::string& path) {
  return ParseSavedJob(absl::StrCat("\"", path, "/", kManifestName, "\": coordinator"),
                       manifest.coordinator);
}

std::string Describe(const CheckpointParameter& parameter) {
  return absl::StrCat("\"", parameter.name, "\" [", absl::StrJoin(parameter.Extents(), ", "), "]");
}

// What the servers' states mean, in words; the job that made the checkpoint tells.
// The manifest has the number of states; their names follow from the job, so that a refusal can say what they mean.
std::string StatesIn(const Manifest& manifest) {
  if (manifest.states == 0) return "none";
  const absl::StatusOr<Recipe> recipe = RecipeFor(JobOfText(manifest.job_text));
  const std::vector<std::string> names =
      recipe.ok() ? ServerStates(*recipe) : std::vector<std::string>();
  // Another number than this build knows of the method: the states cannot be named.
  if (static_cast<int64_t>(names.size()) == manifest.states) return absl::StrJoin(names, ", ");
  return absl::StrCat(manifest.states, " of a job that this build does not know");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenForRestore(const std::string& path) {
  std::vector<ListedCheckpoint> broken;
  absl::StatusOr<std::unique_ptr<Checkpoint>> newest = NamedCheckpoint(path, &broken);
  for (const ListedCheckpoint& entry : broken) {
    Log(LogLevel::kWarning, absl::StrCat("checkpoint: passed over step=", entry.step, " why=\"",
                                         entry.status.message(), "\""));
  }
  return newest;
}

namespace {

// The differing keys that decide what a model's parameters and states are. Empty: none of them differ.
std::string DifferencesOfModel(const Manifest& saved, const Manifest& model) {
  std::vector<KeyDifference> differences = DifferencesOf(model.job_text, saved.job_text);
  const auto is_other = [](const KeyDifference& key) {
    // Keys of other rooms, such as data or cluster, change no parameter.
    for (const absl::string_view room : {"model", "method", "codec", "train.optimizer"}) {
      if (absl::StartsWith(key.key, room)) return false;
    }
    return true;
  };
  differences.erase(std::remove_if(differences.begin(), differences.end(), is_other),
                    differences.end());
  return differences.empty() ? "" : absl::StrCat(": ", Describe(differences));
}

// Weights of sums over units that sites share are larger in subnets than in the whole model
// (common/keyset/mean_share.h).
absl::Status CheckScales(const Manifest& saved, const Manifest& model,
                         const std::vector<int>& weights_of_mean_share) {
  // The factor of an exported value shows that it was trained as a sum over a part of the units.
  const auto is_of_subnets = [](const CheckpointParameter& parameter) {
    return parameter.export_factor != 1;
  };
  const auto found = std::find_if(saved.parameters.begin(), saved.parameters.end(), is_of_subnets);
  const bool was = found != saved.parameters.end(), is = !weights_of_mean_share.empty();
  // One site has the whole model.
  if (was == is || saved.method == model.method) return absl::OkStatus();
  const std::string& name =
      was ? found->name : saved.parameters[weights_of_mean_share.front()].name;
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint: values of ", name, " are ", was ? "those of subnets" : "the whole model's", " (",
      saved.method, "), want ", is ? "those of subnets" : "the whole model's", " (", model.method,
      "): the sums that it weighs have fewer terms in a subnet, and no batch norm takes that "
      "up. Write the model with `tessera export` and name that file in model.init"));
}

}  // namespace

absl::Status CheckRestorable(const Manifest& saved, const Manifest& model,
                             const std::vector<int>& weights_of_mean_share) {
  // States come first: where they differ the parameters often are the same, and to go on with them alone would train in
  // another way than before.
  const std::string were = StatesIn(saved), are = StatesIn(model);
  if (were != are) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint: states of the servers are ", were, " (", saved.method, "), want ", are, " (",
        model.method, "); go on with the method and the optimizer that it was saved with",
        DifferencesOfModel(saved, model)));
  }
  const auto differs = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint: ", what,
                                                      "; it is of another model or another method",
                                                      DifferencesOfModel(saved, model)));
  };
  if (saved.model_parameters != model.model_parameters) {
    return differs(absl::StrCat("parameters of the model are ", saved.model_parameters, ", want ",
                                model.model_parameters));
  }
  if (saved.parameters.size() != model.parameters.size()) {
    return differs(absl::StrCat("parameters are ", saved.parameters.size(), ", want ",
                                model.parameters.size()));
  }
  for (size_t p = 0; p < saved.parameters.size(); ++p) {
    const CheckpointParameter& a = saved.parameters[p];
    const CheckpointParameter& b = model.parameters[p];
    if (a.name == b.name && a.rows == b.rows && a.columns == b.columns &&
        a.columns_are == b.columns_are && a.is_scalar == b.is_scalar) {
      continue;
    }
    return differs(absl::StrCat("parameter ", p, " is ", Describe(a), ", want ", Describe(b)));
  }
  return CheckScales(saved, model, weights_of_mean_share);
}

absl::Status OfDirectory(const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("checkpoint.directory: ", absl::StripPrefix(status.message(), "checkpoint: ")));
}

absl::Status CheckFolder(const std::string& directory, const Manifest* restored) {
  const absl::StatusOr<std::vector<ListedCheckpoint>> found =
      ListCheckpoints(directory, /*verify=*/false);
  if (!found.ok()) return OfDirectory(found.status());
  const std::vector<ListedCheckpoint>& listed = *found;
  if (listed.empty()) return absl::OkStatus();
  const uint64_t newest = listed.front().step;
  // Otherwise a job that begins anew would write among the checkpoints of another, and prune them as its own.
  if (restored == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint.directory: \"", directory, "\" has checkpoints already, the newest of step ",
        newest, "; set checkpoint.restore to go on from there, or name an empty folder"));
  }
  // Checkpoints are kept by their age in steps: earlier ones that were written now would be the first to go.
  if (newest > restored->step && listed.front().status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint.directory: \"", directory, "\" has a later checkpoint, of step ",
                     newest, ", than checkpoint.restore, which is of step ", restored->step,
                     "; restore that one, or name an empty folder"));
  }
  return absl::OkStatus();
}

std::vector<std::string> ChangedKeys(const Manifest& saved, const Manifest& model) {
  std::vector<std::string> keys;
  const auto value = [](const std::optional<std::string>& text) {
    return text.has_value() ? *text : "not set";
  };
  for (const KeyDifference& key : DifferencesOf(model.job_text, saved.job_text)) {
    keys.push_back(absl::StrCat(key.key, " was ", value(key.wanted), " and is ", value(key.given)));
  }
  return keys;
}

absl::StatusOr<std::shared_ptr<const SavedState>> SavedStateOf(const Checkpoint& checkpoint,
                                                               bool from_restore) {
  auto state = std::make_shared<SavedState>();
  state->manifest = checkpoint.manifest();
  state->from_restore = from_restore;
  TESSERA_ASSIGN_OR_RETURN(state->job, SavedJobOf(state->manifest, checkpoint.path()));
  return std::shared_ptr<const SavedState>(std::move(state));
}

absl::StatusOr<SavedShard> SavedShardOf(const Manifest& manifest, const std::string& path,
                                        const ShardSlices& slices) {
  TESSERA_ASSIGN_OR_RETURN(const SavedJob job, SavedJobOf(manifest, path));
  SavedShard saved;
  const CheckpointShard counters =
      CountersFor(manifest.shards, static_cast<int64_t>(slices.shard.value()), slices.shard_count);
  saved.counters.version = Version(counters.version);
  saved.counters.examples = counters.examples;
  saved.counters.pushes = counters.pushes;
  saved.counters.staleness_sum = counters.staleness_sum;
  saved.counters.staleness_max = counters.staleness_max;
  // Counters of another build may have more entries or fewer.
  const size_t entries = std::min(counters.staleness.size(), saved.counters.staleness.size());
  std::copy_n(counters.staleness.begin(), entries, saved.counters.staleness.begin());
  saved.exchange = Exchange(manifest.exchange);
  saved.whole_next = job.whole_next;
  const absl::StatusOr<Recipe> recipe = RecipeFor(JobOfText(manifest.job_text));
  if (recipe.ok() && recipe->core) saved.core_every = recipe->core->every;
  // CheckRestorable has found that this job keeps the same states.
  if (recipe.ok() && !recipe->rule_states.empty()) {
    const std::unique_ptr<UpdateRule> rule = recipe->make_rule();
    for (int s = 0; s < rule->state_count(); ++s) saved.divisors.push_back(rule->divisor(s));
  }
  return saved;
}

absl::Status LoadShard(const Checkpoint& checkpoint, const std::function<bool()>& goes_on,
                       Shard* shard) {
  if (const int error = Failpoint("shard.load")) return FileError(error, checkpoint.path(), "read");
  std::vector<Checkpoint::Rows> rows;
  for (const Slice& slice : shard->slices().slices) {
    rows.push_back({slice.parameter, slice.row_begin, slice.row_end});
  }
  // All sums are checked before the first row is read into the shard: a shard that is half loaded is of no use.
  TESSERA_RETURN_IF_ERROR(checkpoint.VerifyRows(rows, goes_on));
  TESSERA_ASSIGN_OR_RETURN(SavedShard saved,
                           SavedShardOf(checkpoint.manifest(), checkpoint.path(), shard->slices()));
  // Each call asks whether it is still wanted: reading a large shard takes minutes.
  saved.read_rows = [&](int parameter, int state_index, int64_t row_begin, int64_t row_end,
                        float* out) {
    if (!goes_on()) return absl::CancelledError("checkpoint: it is not wanted any more");
    return checkpoint.ReadRows(parameter, state_index, row_begin, row_end, out);
  };
  return shard->Load(saved);
}

}  // namespace tessera

#include "tests/fuzz/fuzz_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"

namespace tessera {
namespace {

// `method` and `codec` of a job, and whether shards have standbys.
constexpr struct {
  const char* method;
  const char* codec;
  bool has_standbys = false;
} kChoices[] = {
    {"data_parallel: {}", "push: f32"},
    {"data_parallel: {}", "{push: {int8: {}}, pull: bf16, error_feedback: true}"},
    {"local_sgd: {local_steps: 2, average_state: true}", "{push: f16, pull: {int8: {}}}"},
    {"diloco: {local_steps: 2, quorum: {pushes: 1, grace: 1s}}", "push: bf16"},
    {"diloco: {local_steps: 2, asynchronous: true}", "push: f32"},
    {"async_sgd: {staleness: {inverse: {scale: 1}}}", "push: f32"},
    {"async_sgd: {}", "push: {threshold: {tau: 0.5, packed: true}}"},
    {"softsync: {pushes: 2}", "{push: f32, pull: {qsgd: {bits: 3, bucket: 4}}}"},
    {"ssp: {bound: 1}", "push: f32"},
    {"quant_dp: {bits: 4, bucket: 8}", "pull: f32"},
    {"ist: {local_steps: 1, tail_steps: 4}", "push: f32"},
    {"ist: {local_steps: 1, parts: by_speed}", "{push: {int8: {}}, pull: {int8: {}}}"},
    {"ensemble: {}", "push: f32"},
    {"slim_dp: {alpha: 0.5, beta: 0.25, core_every: 3}", "push: f32"},
    {"slim_dp: {alpha: 0.5, beta: 0.25, core_every: 2, asynchronous: true}",
     "{push: {int8: {}}, pull: {int8: {}}}"},
    {"decentralized: {density: 0.25}", "push: {threshold: {tau: 0.5}}"},
    {"data_parallel: {}", "push: f32", true},
    {"slim_dp: {alpha: 0.5, beta: 0.25, core_every: 3}", "push: f32", true},
    {"layer_separation: {linear_workers: 1}", "push: f32"},
    {"layer_separation: {linear_workers: 1}", "{push: {int8: {}}, pull: bf16}", true},
};

constexpr char kLayers[] =
    "model:\n"
    "  input: [5]\n"
    "  layers:\n"
    "    - linear: {units: 6, bias: false}\n"
    "    - batch_norm\n"
    "    - relu\n"
    "    - linear: {units: 3}\n"
    "    - batch_norm: {affine: false}\n";
constexpr char kCutLayers[] =
    "model:\n"
    "  input: [1, 3, 3]\n"
    "  layers:\n"
    "    - conv2d: {channels: 2, kernel: 2}\n"
    "    - batch_norm\n"
    "    - relu\n"
    "    - linear: {units: 3}\n";

std::string Text(const std::string& method, const std::string& codec, bool has_standbys) {
  const bool is_replicated = method.find("decentralized") != std::string::npos;
  return absl::StrCat(
      "name: fuzz\n"
      "data: {format: idx, directory: d, train: {features: a, labels: b},"
      " test: {features: c, labels: e}}\n",
      method.find("layer_separation") == std::string::npos ? kLayers : kCutLayers,
      "train: {batch_size: 2, steps: 40, optimizer: {sgd: {learning_rate: 0.1, momentum: ",
      method.find("average_state") == std::string::npos ? "0" : "0.9", "}}}\n", "method: {", method,
      "}\n", "codec: ", codec[0] == '{' ? codec : absl::StrCat("{", codec, "}"), "\n",
      "cluster: {servers: ", is_replicated || has_standbys ? "2" : "1",
      ", workers: 2, lease_timeout: 10s", has_standbys ? ", replicas: 1}\n" : "}\n",
      method.find("slim_dp") == std::string::npos && !is_replicated
          ? "checkpoint: {directory: /fuzz, every_steps: 4}\n"
          : "");
}

FuzzJob Make(const std::string& method, const std::string& codec, bool has_standbys) {
  FuzzJob made;
  JobReading reading = ReadJob({Text(method, codec, has_standbys), "fuzz.yaml", "/jobs", {}},
                               {/*check_files=*/false});
  std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
  TESSERA_CHECK(reading.ok());
  made.job = std::move(reading.job);
  made.recipe = RecipeFor(made.job).value();
  made.shape = ExchangedShape(made.job.model(), made.recipe).value();
  made.digest = JobDigest(made.job);
  made.facts = FactsOf(made.job, made.recipe, made.shape, made.digest);
  return made;
}

}  // namespace

std::unique_ptr<Shard> FuzzJob::MakeShard() const {
  Shard::Options options;
  options.shape = shape;
  options.shard = ShardAt(recipe.placement, 0);
  options.sharding = ShardingOf(recipe, static_cast<int>(job.cluster().servers().count()));
  options.placement = recipe.placement;
  options.seed = job.seed();
  options.kind = static_cast<int>(recipe.payload);
  options.codecs = recipe.codecs;
  options.policy = recipe.make_policy();
  options.rule = recipe.make_rule();
  options.schedule = recipe.schedule;
  if (recipe.subnets) options.groups = GroupsOf(shape);
  options.core = recipe.core;
  if (recipe.split) options.cut = recipe.split->cut;
  if (recipe.tail_steps > 0) options.whole_kind = static_cast<int>(TailOf(recipe).payload);
  return std::make_unique<Shard>(std::move(options));
}

const std::vector<FuzzJob>& FuzzJobs() {
  static const std::vector<FuzzJob>* const jobs = [] {
    auto* const all = new std::vector<FuzzJob>;
    for (const auto& choice : kChoices) {
      all->push_back(Make(choice.method, choice.codec, choice.has_standbys));
    }
    return all;
  }();
  return *jobs;
}

Plan FuzzPlan(uint64_t generation, int members) {
  Plan plan;
  plan.generation = Generation(generation);
  for (int i = 0; i < members; ++i) {
    plan.members.push_back({MemberId(i + 1), Rank(i), Exchange(1)});
  }
  return plan;
}

}  // namespace tessera

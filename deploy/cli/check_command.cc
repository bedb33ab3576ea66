#include "deploy/cli/check_command.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/coded_keys.h"
#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"

namespace tessera {

namespace {

// Of one exchange of one worker with all servers. A subnet's: that of site 0 in round 1, where all
// have the same share.
int64_t PayloadBytes(const Codec& codec, const v1::Job& job, const Recipe& recipe,
                     const ModelShape& shape) {
  const int servers = static_cast<int>(job.cluster().servers().count());
  if (recipe.core) {
    const auto entries = static_cast<int64_t>(recipe.core->alpha * static_cast<double>(shape.size));
    return CodedForms::OfEntries(recipe.codecs, entries).Find(codec)->bytes();
  }
  KeySet keys = DenseKeys(shape, ShardCount(recipe.placement, servers));
  if (recipe.subnets) {
    SubnetPlace place;
    place.seed = job.seed();
    place.round = 1;
    place.shares.assign(std::max<int64_t>(1, job.cluster().workers()), 1);
    keys = SubnetKeys(shape, SubnetOf(shape, GroupsOf(job.model(), shape), place), place, servers);
  }
  int64_t bytes = 0;
  for (const ShardSlices& slices : keys.slices) {
    bytes += codec.kind == CodecKind::kThreshold
                 ? static_cast<int64_t>(4 * codec.density * static_cast<double>(slices.size))
                 : CodedKeys(codec, slices, shape).bytes();
  }
  return bytes;
}

void PrintTraffic(const v1::Job& job, const Recipe& recipe) {
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), recipe);
  if (!shape.ok()) return;
  int64_t pushed = PayloadBytes(recipe.codecs.push, job, recipe, *shape);
  // To every peer, and none to oneself.
  if (recipe.placement == Placement::kReplicated) pushed *= job.cluster().servers().count() - 1;
  const int64_t pulled = PayloadBytes(recipe.codecs.pull, job, recipe, *shape);
  const std::string interval =
      recipe.closed_to_joiners ? "job"
      : recipe.local_steps == 1 ? "step"
                                : absl::StrCat(recipe.local_steps, " steps");
  std::printf("# traffic     each worker pushes %s%" PRId64 " bytes and pulls %" PRId64 " every %s\n",
              recipe.codecs.push.kind == CodecKind::kThreshold ? "about " : "", pushed, pulled,
              interval.c_str());
}

}  // namespace

int CheckJobFile(const CheckOptions& options) {
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, JobOptions{});
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  const absl::StatusOr<ModelShape> shape = ShapeOf(reading.job.model());
  const absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
  for (const absl::Status& status : {shape.status(), recipe.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", options.job_path.c_str(),
                 std::string(status.message()).c_str());
    return 2;
  }
  std::printf("# %s is right.\n", options.job_path.c_str());
  std::printf("# digest      %s\n", JobDigest(reading.job).c_str());
  std::printf("# parameters  %" PRId64 " (%.1f MiB as f32)\n", shape->size,
              shape->size * 4.0 / (1 << 20));
  std::printf("# method      %s\n", recipe->description.c_str());
  PrintTraffic(reading.job, *recipe);
  std::fputs(PrintJob(reading.job).c_str(), stdout);
  return 0;
}

}  // namespace tessera

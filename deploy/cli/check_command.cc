#include "deploy/cli/check_command.h"

#include <cinttypes>
#include <cstdio>

#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"

namespace tessera {

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
  std::printf("# traffic     each worker pulls and pushes %" PRId64 " bytes every %" PRId64
              " steps\n",
              shape->size * 4, recipe->local_steps);
  std::fputs(PrintJob(reading.job).c_str(), stdout);
  return 0;
}

}  // namespace tessera

// The part of a checkpoint's manifest that the coordinator goes on from.
#include <string>

#include "common/base/check.h"
#include "server/control/saved_job.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string where = "m.coordinator";
  const auto job =
      ParseSavedJob(where, absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!job.ok()) {
    TESSERA_CHECK(job.status().message().substr(0, where.size()) == where);
    return 0;
  }
  TESSERA_CHECK(job->train_seconds >= 0);
  for (size_t i = 0; i < job->cuts.size(); ++i) {
    const SavedCut& cut = job->cuts[i];
    TESSERA_CHECK(cut.steps > 0 && !cut.ranks.empty());
    for (size_t k = 1; k < cut.ranks.size(); ++k) TESSERA_CHECK(cut.ranks[k - 1] < cut.ranks[k]);
    if (i == 0) continue;
    TESSERA_CHECK(cut.epoch == job->cuts[i - 1].epoch + 1);
    TESSERA_CHECK(cut.first_step == job->cuts[i - 1].first_step + job->cuts[i - 1].steps);
  }
  const std::string written = FormatSavedJob(*job);
  const auto again = ParseSavedJob(where, written);
  TESSERA_CHECK(again.ok() && FormatSavedJob(*again) == written);
  return 0;
}

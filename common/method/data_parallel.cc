// Data parallel SGD (bulk synchronous).
//   payload      gradient of one minibatch      key set  dense      codec  any
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
// w <- w - eta * (1/K) sum_k g_k.  Per worker and step: up 4n bytes, down 4n bytes, one round trip.
#include "absl/status/statusor.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"

namespace tessera {

extern const Method kDataParallel = {v1::Method::kDataParallel,
                                     [](const v1::Job& job) -> absl::StatusOr<Recipe> {
                                       Recipe recipe = MeanOfGradients(job);
                                       recipe.name = "data_parallel";
                                       return recipe;
                                     }};

}  // namespace tessera

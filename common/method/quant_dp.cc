// Data parallel SGD with quantised gradients.  Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD:
// Communication-Efficient SGD via Gradient Quantization and Encoding, NIPS 2017.
//   payload      gradient of one minibatch      key set  dense      codec  qsgd up, f32 down
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
// Rounding has no bias, so that steps go where data_parallel's go, with some noise. Per worker and
// step: up (bits/8 + 4/bucket) n bytes, down 4n bytes, or as the job's codec.pull has it.
#include "absl/status/statusor.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> RecipeOf(const v1::Job& job) {
  Recipe recipe = MeanOfGradients(job);
  recipe.name = "quant_dp";
  const v1::QuantDp& quant = job.method().quant_dp();
  recipe.codecs.push.kind = CodecKind::kQsgd;
  recipe.codecs.push.bits = static_cast<int>(quant.bits());
  recipe.codecs.push.bucket = quant.bucket();
  recipe.codecs.push.l2_norm = quant.norm() == "l2";
  return recipe;
}

}  // namespace

extern const Method kQuantDp = {v1::Method::kQuantDp, RecipeOf};

}  // namespace tessera

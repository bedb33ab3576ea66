// Data parallel SGD with quantised gradients.  Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD:
// Communication-Efficient SGD via Gradient Quantization and Encoding, NIPS 2017.
//   payload      gradient of one minibatch      key set  dense      codec  qsgd up, f32 down
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
// Rounding has no bias, so that steps go where data_parallel's go, with some noise. Per worker and
// step: up (bits/8 + 4/bucket) n bytes, down 4n bytes, or as the job's codec.pull has it.
#include "common/codec/qsgd.h"
#include "common/method/methods.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> RecipeOf(const v1::Job& job) {
  Recipe recipe = MeanOfGradients(job);
  recipe.name = "quant_dp";
  const v1::QuantDp& quant = job.method().quant_dp();
  recipe.codecs.push =
      QsgdCodec(static_cast<int>(quant.bits()), quant.bucket(), quant.norm() == "l2");
  return recipe;
}

}  // namespace

extern const Method kQuantDp = {v1::Method::kQuantDp, RecipeOf};

}  // namespace tessera

// Data parallel SGD with quantised gradients.  Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD:
// Communication-Efficient SGD via Gradient Quantization and Encoding, NIPS 2017.
//   payload      gradient of one minibatch      key set  dense      codec  qsgd up, f32 down
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
// Rounding has no bias, so that steps go where data_parallel's go, with some noise. Per worker and
// step: up (bits/8 + 4/bucket) n bytes, down 4n bytes, or as the job's codec.pull has it.
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/codec/codecs.h"
#include "common/codec/qsgd.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"

namespace tessera {
namespace {

Codec OwnCodec(const v1::Job& job) {
  const v1::QuantDp& quant = job.method().quant_dp();
  return QsgdCodec(static_cast<int>(quant.bits()), quant.bucket(), quant.norm() == "l2");
}

absl::StatusOr<Recipe> QuantDpRecipe(const v1::Job& job) {
  Recipe recipe = MeanOfGradients(job);
  recipe.name = "quant_dp";
  recipe.codecs.push = OwnCodec(job);
  return recipe;
}

// The method is its codec: a job may name that again, and no other.
void CheckQuantDp(const v1::Job& job, KeyErrors* errors) {
  if (!errors->Sound("codec") || !errors->Sound("method")) return;
  if (job.codec().push().kind_case() == v1::Codec::KIND_NOT_SET) return;
  const Codec push = CodecOf(job.codec().push());
  const Codec own = OwnCodec(job);
  if (push == own) return;
  errors->Add("codec.push", absl::StrCat("got ", push->name(),
                                         ", want no codec.push with method quant_dp, which has ",
                                         own->name(), "; for another codec use data_parallel"));
}

}  // namespace

extern const Method kQuantDp = {v1::Method::kQuantDp, QuantDpRecipe, CheckQuantDp};

}  // namespace tessera

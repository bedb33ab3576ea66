// Slim-DP: an exchange moves a core, which is what matters most, and an explorer, drawn at random from
// the rest.  Sun, Chen, Bian, Liu, Liu: Slim-DP, AAAI 2018 (arXiv 1709.09393).
//   payload      delta of p local steps         key set  sparse(core + explorer)    codec  any of fixed size
//   consistency  barrier; asynchronous: none    rule     mean, add; asynchronous: weight 1/K
// w_j <- w_j + (1/K) sum of delta_kj over those that sent j. Each q-th push is of all entries, and the core
// is selected anew from |w| + c |g|.
// Per worker and exchange: up and down 4 alpha n bytes, each q-th up 4n; per core its keys down, n / 8 bytes
// at most.
#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/codec/codecs.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/keyset/core_share.h"
#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> SlimDpRecipe(const v1::Job& job) {
  const v1::SlimDp& keys = job.method().slim_dp();
  const float weight = 1.0f / static_cast<float>(std::max<int64_t>(1, job.cluster().workers()));
  Recipe recipe;
  recipe.name = "slim_dp";
  recipe.local_steps = keys.local_steps();
  recipe.description = absl::StrCat(
      "Slim-DP, every ", recipe.local_steps, recipe.local_steps == 1 ? " step" : " steps",
      ": workers exchange ", 100 * keys.alpha(), "% of the entries, of which ", 100 * keys.beta(),
      "% are the core; every ", keys.core_every(),
      " exchanges they push all, and the servers select the core anew");
  recipe.payload = PayloadKind::kDelta;
  recipe.lockstep = !keys.asynchronous();
  recipe.aligned = recipe.lockstep;
  recipe.core = CoreShare{keys.alpha(), keys.beta(), static_cast<uint64_t>(keys.core_every()),
                          keys.gradient_weight()};
  // An exchange that moves all entries has nothing to select.
  if (recipe.core->is_whole()) recipe.core.reset();
  recipe.make_rule = MakeAdd;
  if (keys.asynchronous()) {
    absl::StrAppend(&recipe.description, "; each push is added when it arrives, with weight ",
                    weight, ", and nobody waits for anybody");
    recipe.push_weight = PushWeight::kOfRanks;
    recipe.make_policy = [weight] { return MakeNone(weight); };
  } else {
    absl::StrAppend(&recipe.description, "; the servers add the mean of all pushes");
    recipe.make_policy = BarrierOf(job);
  }
  return recipe;
}

void CheckCodec(const v1::Job& job, KeyErrors* errors) {
  if (!errors->Sound("codec") || !errors->Sound("method")) return;
  const Codec push = CodecOf(job.codec().push());
  if (push->selective() == nullptr) return;
  errors->Add("codec.push", absl::StrCat("got ", push->kind(),
                                         ", want another codec with method slim_dp, which chooses "
                                         "the entries that a push moves by itself"));
}

void CheckSlimDp(const v1::Job& job, KeyErrors* errors) {
  CheckCodec(job, errors);
  const v1::SlimDp& keys = job.method().slim_dp();
  if (!errors->Sound("method.slim_dp")) return;
  if (keys.beta() > keys.alpha()) {
    errors->Add("method.slim_dp.beta",
                absl::StrCat("got ", keys.beta(), ", want at most ", keys.alpha(),
                             ", which is method.slim_dp.alpha: the core is a part of what is "
                             "exchanged"));
    return;
  }
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  if (!errors->Sound("model") || !errors->Sound("cluster.servers") || !shape.ok()) return;
  const v1::Servers& list = job.cluster().servers();
  const int servers = std::max({1, static_cast<int>(list.count()), list.addresses_size()});
  const CoreShare share{keys.alpha(), keys.beta()};
  // A server's share of the explorer is rounded down, so that a small alpha may leave none on any server.
  int64_t moved = CoreCount(share, shape->size);
  for (const ShardSlices& owned : DenseKeys(*shape, servers).slices) {
    moved += ExplorerCount(share, shape->size, owned.size, 0);
  }
  if (moved > 0 || share.is_whole()) return;
  // One percent above the exact share, so that rounding does not undo it.
  const double least = std::min(1.0, 1.01 * servers / static_cast<double>(shape->size));
  errors->Add("method.slim_dp.alpha",
              absl::StrCat("got ", keys.alpha(), ", want ", absl::StrFormat("%.3g", least),
                           " or more, which is an entry for each server: of this model's ",
                           shape->size, " entries an exchange would move none"));
}

std::vector<LengthNote> SlimDpLengthNotes(const v1::Job& job, int64_t steps) {
  const v1::SlimDp& keys = job.method().slim_dp();
  // The number of exchanges, the last of which may be of fewer steps.
  const int64_t exchanges = (steps - 1) / keys.local_steps() + 1;
  if (keys.beta() == 0 || keys.core_every() <= exchanges) return {};
  return {{"method.slim_dp.core_every", keys.core_every(),
           absl::StrCat("the job has ", exchanges, exchanges == 1 ? " exchange" : " exchanges"),
           "the core stays what it is at the start"}};
}

}  // namespace

extern const Method kSlimDp = {v1::Method::kSlimDp,        SlimDpRecipe, CheckSlimDp,
                               SlimDpLengthNotes,
                               /*counts_steps=*/nullptr,
                               /*notes=*/nullptr,
                               /*moves_some_entries=*/true};

}  // namespace tessera

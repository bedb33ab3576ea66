#include "common/method/recipe.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/method/methods.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

struct Entry {
  v1::Method::KindCase kind;
  Recipe (*make)(const v1::Job& job);
};

// The catalog.
constexpr Entry kMethods[] = {
    {v1::Method::kDataParallel, DataParallel},
    {v1::Method::kLocalSgd, LocalSgd},
    {v1::Method::kAsyncSgd, AsyncSgd},
};

}  // namespace

absl::StatusOr<Recipe> RecipeFor(const v1::Job& job) {
  for (const Entry& entry : kMethods) {
    if (entry.kind == job.method().kind_case()) return entry.make(job);
  }
  return absl::UnimplementedError(absl::StrCat("method: number ", job.method().kind_case(),
                                               " is not in this build; see docs/methods.md"));
}

std::unique_ptr<UpdateRule> OptimizerRule(const v1::Optimizer& optimizer) {
  TESSERA_CHECK(optimizer.has_sgd());  // The job reader lets no other one through.
  const v1::Sgd& sgd = optimizer.sgd();
  return MakeSgd({static_cast<float>(sgd.learning_rate()), static_cast<float>(sgd.momentum()),
                  static_cast<float>(sgd.weight_decay())});
}

}  // namespace tessera

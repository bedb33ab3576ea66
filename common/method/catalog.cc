#include "common/method/catalog.h"

namespace tessera {

// Each is defined in the file of its name.
extern const Method kAsyncSgd, kDataParallel, kDecentralized, kDiloco, kEnsemble, kIst,
    kLayerSeparation, kLocalSgd, kQuantDp, kSlimDp, kSoftsync, kSsp;

namespace {

constexpr const Method* kMethods[] = {
    &kDataParallel, &kLocalSgd, &kDiloco,  &kAsyncSgd,      &kSoftsync, &kSsp,
    &kIst,          &kEnsemble, &kQuantDp, &kDecentralized, &kSlimDp,   &kLayerSeparation,
};

}  // namespace

absl::Span<const Method* const> Methods() { return kMethods; }

const Method* MethodOf(const v1::Job& job) {
  for (const Method* const method : kMethods) {
    if (method->kind == job.method().kind_case()) return method;
  }
  return nullptr;
}

}  // namespace tessera

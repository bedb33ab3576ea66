#include "common/method/catalog.h"

#include "absl/strings/str_cat.h"

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

std::string WhyNoTensors(const v1::Job& job) {
  const google::protobuf::OneofDescriptor* const kind =
      v1::Method::descriptor()->FindOneofByName("kind");
  const google::protobuf::FieldDescriptor* const named =
      v1::Method::GetReflection()->GetOneofFieldDescriptor(job.method(), kind);
  return absl::StrCat("got ", named->name(),
                      " beside model.tensors, want another method: ", MethodOf(job)->why_layers);
}

const Method* MethodOf(const v1::Job& job) {
  for (const Method* const method : kMethods) {
    if (method->kind == job.method().kind_case()) return method;
  }
  return nullptr;
}

}  // namespace tessera

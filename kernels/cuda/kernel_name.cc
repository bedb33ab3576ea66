#include "kernels/cuda/kernel_name.h"

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace tessera::cuda {

std::string KernelName(absl::string_view signature) {
  constexpr absl::string_view kBefore = "Kernel = ";
  const size_t begin = signature.find(kBefore);
  if (begin == absl::string_view::npos) return std::string(signature);
  absl::string_view name = signature.substr(begin + kBefore.size());
  absl::ConsumeSuffix(&name, "]");
  return absl::StrReplaceAll(name, {{"tessera::cuda::", ""}, {"tessera::", ""}});
}

}  // namespace tessera::cuda

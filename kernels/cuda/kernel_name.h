// A kernel's name for messages, from its type.
#ifndef TESSERA_KERNELS_CUDA_KERNEL_NAME_H_
#define TESSERA_KERNELS_CUDA_KERNEL_NAME_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tessera::cuda {

// Costs nothing until a name is wanted of it.
template <typename Kernel>
const char* SignatureOf() {
  return __PRETTY_FUNCTION__;
}

// "Elementwise<AxpyOp>" of SignatureOf<Elementwise<AxpyOp>>(), as GCC and Clang write it.
std::string KernelName(absl::string_view signature);

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_KERNEL_NAME_H_

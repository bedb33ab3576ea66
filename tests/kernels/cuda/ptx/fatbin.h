// The PTX that nvcc puts into a program.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_FATBIN_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_FATBIN_H_

#include <string>

namespace tessera::ptx {

// Of what a program registers with the runtime (crt/fatbinary_section.h); empty: that is machine code alone. Throws
// std::runtime_error.
std::string PtxOf(const void* registered);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_FATBIN_H_

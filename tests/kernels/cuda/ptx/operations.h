// What instructions do that touch nothing but registers.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_OPERATIONS_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_OPERATIONS_H_

#include <string>

#include "tests/kernels/cuda/ptx/module.h"

namespace tessera::ptx {

// Of "add.rn.f32" and the like; null where it is not known.
Instruction::Run FindOperation(const std::string& name);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_OPERATIONS_H_

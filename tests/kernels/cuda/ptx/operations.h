// What instructions do that touch nothing but registers.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_OPERATIONS_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_OPERATIONS_H_

#include <string>

#include "tests/kernels/cuda/ptx/module.h"

namespace tessera::ptx {

// Of "add.rn.f32" and the like; null where it is not known.
Instruction::Run FindOperation(const std::string& name);

// So many instructions of sm_90 it takes, about: 2 for 64 bits, and for f64, which goes at half the rate; none for
// what is only moved, which ptxas gets rid of.
int CostOf(const std::string& name);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_OPERATIONS_H_

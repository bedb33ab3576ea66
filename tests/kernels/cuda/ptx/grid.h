// Runs an entry over a grid, thread by thread, and watches each step as compute-sanitizer does: memory that is not
// there, was never written or is not aligned; threads that touch the same bytes with no barrier between them, one of
// them writing; barriers and shuffles that not all threads come to.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_GRID_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_GRID_H_

#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/ptx/memory.h"
#include "tests/kernels/cuda/ptx/module.h"

namespace tessera::ptx {

struct Grid {
  const Entry* entry = nullptr;
  int64_t blocks = 0;
  int threads = 0;  // of a block
  std::vector<char> parameters;
};

// `reached`: 1 for each instruction of the entry that some thread has come to. Throws std::runtime_error: the kernel,
// the thread, the instruction and what is wrong with it.
void RunGrid(const Grid& grid, DeviceMemory* memory, std::vector<char>* reached);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_GRID_H_

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

// What an entry's grids did.
struct Usage {
  int64_t launches = 0;
  std::vector<int64_t> times;  // that a warp, or some of it, did each instruction
  // Pieces of 32 bytes of global memory that warps asked for. One that moves 4 bytes a lane, side by side, takes 4.
  int64_t loaded = 0;
  int64_t stored = 0;

  int64_t Issued(const Entry& entry) const;  // costs of all
};

// Adds to `usage`. Throws std::runtime_error: the kernel, the thread, the instruction and what is wrong with it.
void RunGrid(const Grid& grid, DeviceMemory* memory, Usage* usage);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_GRID_H_

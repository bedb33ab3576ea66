// Products with sparse rows on a GPU: the columns that occur are gathered into a panel [present,
// outputs], a block of outputs at a time, and scattered back from one.
#ifndef TESSERA_KERNELS_CUDA_SPARSE_LINEAR_H_
#define TESSERA_KERNELS_CUDA_SPARSE_LINEAR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/scratch.h"
#include "kernels/sparse_columns.h"
#include "kernels/sparse_linear.h"

namespace tessera {

class CudaSparseLinear final : public SparseLinearKernel {
 public:
  CudaSparseLinear(cuda::Device* device, CudaMemory* memory)
      : device_(*device), memory_(*memory), lists_(memory), panel_(memory) {}

  void Forward(const LinearShape& shape, const SparseRows& x, const float* weight,
               const float* bias, float* y) override;
  void WeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy,
                      WriteMode mode, TouchedColumns* touched, float* dweight) override;
  void AddWeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy, float a,
                         float* weight) override;

  absl::Status TakeStatus();

 private:
  // The lists of a batch on the device; all null where there is no room.
  struct Lists {
    int64_t* begin = nullptr;
    int32_t* columns = nullptr;  // that occur
    int32_t* place = nullptr;    // by entry
    float* value = nullptr;      // by entry
    int32_t* before = nullptr;   // columns to clear first
  };
  Lists SendLists(int64_t runs, const int64_t* begin, const int32_t* place, const float* value,
                  const std::vector<int32_t>& before);
  // Calls f(first output, outputs) for blocks whose panel fits, with the panel.
  template <typename F>
  void ForBlocks(int64_t outputs, const F& f);
  // The panel of dy^T x, then `scatter` of it, block by block.
  template <typename F>
  void SumColumns(const LinearShape& shape, const Lists& lists, const float* dy, const F& scatter);

  cuda::Device& device_;
  CudaMemory& memory_;
  SparseColumns batch_;
  CudaScratch lists_;
  CudaScratch panel_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_SPARSE_LINEAR_H_

// Sequences of kernels as CUDA graphs: one launch for all of them.
#ifndef TESSERA_KERNELS_CUDA_SEQUENCE_H_
#define TESSERA_KERNELS_CUDA_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/scratch.h"
#include "kernels/sequence.h"
#include "kernels/shortcuts.h"

namespace tessera {

// The first Run queues, as libraries prepare themselves and scratch grows then. The second one records,
// and later ones repeat the record, until scratch has moved: then it begins anew. What the device
// cannot record is queued each time.
class CudaSequence final : public Sequence {
 public:
  // All outlive it. `scratch` is what recorded kernels may use.
  CudaSequence(cuda::Device* device, CudaMemory* memory, const CudaScratch* scratch,
               Shortcuts* shortcuts)
      : device_(*device), memory_(*memory), scratch_(*scratch), shortcuts_(*shortcuts) {}
  ~CudaSequence() override { Forget(); }

  void Run(absl::FunctionRef<void()> queue) override;

 private:
  void Forget();

  cuda::Device& device_;
  CudaMemory& memory_;
  const CudaScratch& scratch_;
  Shortcuts& shortcuts_;
  cuda::Device::Graph graph_ = cuda::Device::kNoGraph;
  bool prepared_ = false;
  bool refused_ = false;
  uint64_t scratch_moves_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_SEQUENCE_H_

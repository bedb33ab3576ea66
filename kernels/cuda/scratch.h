// Device memory that kernels pass on to the next kernel, and no longer.
#ifndef TESSERA_KERNELS_CUDA_SCRATCH_H_
#define TESSERA_KERNELS_CUDA_SCRATCH_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/memory.h"

namespace tessera {

// Grows to what is asked for and stays. What is queued on the compute stream is done in order, so
// that each call of a kernel may use all of it. One owner among the kernels for each.
class CudaScratch {
 public:
  explicit CudaScratch(CudaMemory* memory) : memory_(*memory) {}

  // Null where there is no room; the failure is then the status. Old contents are gone.
  void* Of(int64_t bytes) {
    if (buffer_.size() >= bytes) return buffer_.data();
    buffer_ = Buffer<char>();
    ++moves_;
    absl::StatusOr<Buffer<char>> larger = Buffer<char>::Create(memory_, bytes);
    if (!larger.ok()) {
      status_.Update(larger.status());
      return nullptr;
    }
    buffer_ = std::move(*larger);
    return buffer_.data();
  }

  // Counts how often the scratch has come to lie elsewhere: addresses that were taken before are then void.
  uint64_t moves() const { return moves_; }

  absl::Status TakeStatus() {
    absl::Status status = std::move(status_);
    status_ = absl::OkStatus();
    return status;
  }

 private:
  CudaMemory& memory_;
  Buffer<char> buffer_;
  uint64_t moves_ = 0;
  absl::Status status_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_SCRATCH_H_

// The CPU backend: oneDNN for matrix products, loops of our own for the rest, OpenMP for both.
#ifndef TESSERA_KERNELS_CPU_BACKEND_H_
#define TESSERA_KERNELS_CPU_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tessera {

struct CpuOptions {
  // The threads that one kernel may use, whichever thread calls.
  int threads = 1;
};

// A call has done its work when it returns. Results other than matrix products do not depend on
// `threads` nor on the CPU; matrix products may.
// kInvalidArgument unless 1 <= threads <= 1024, the system has so many, and OpenMP gives the calling thread a team of
// all of them, as it then gives every thread that calls the backend.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_BACKEND_H_

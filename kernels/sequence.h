// Kernels that are queued again and again, with the same arguments.
#ifndef TESSERA_KERNELS_SEQUENCE_H_
#define TESSERA_KERNELS_SEQUENCE_H_

#include "absl/functional/function_ref.h"

namespace tessera {

// Made by Backend::MakeSequence, whose backend outlives it.
class Sequence {
 public:
  virtual ~Sequence() = default;

  // Queues what `queue` queues. A device that repeats work at less cost than it is queued calls it only
  // until it knows that work: `queue` is to do the same each time, which is to call kernels and
  // Memory::Fetch, and nothing that waits.
  virtual void Run(absl::FunctionRef<void()> queue) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_SEQUENCE_H_

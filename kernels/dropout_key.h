// Names the dropout of one step.
#ifndef TESSERA_KERNELS_DROPOUT_KEY_H_
#define TESSERA_KERNELS_DROPOUT_KEY_H_

#include <cstdint>

#include "common/base/host_device.h"

namespace tessera {

// A key, a layer and an element decide alike on every backend:
//   block = Philox(seed, kDropout, layer / 256 << 48 | step, rank << 48 | layer % 256 << 40 | element / 4)
//   the element is dropped if UnitFloat(block[element % 4]) < probability
// with element = (first_row + row) * columns + column, so a forward and a backward pass agree without
// a stored mask, and a row's numbers are the same in a piece of its minibatch as in all of it. Lies in
// device memory, so that a kernel that is recorded once and repeated draws anew.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;       // below 2^48
  uint64_t rank = 0;       // below 2^16
  uint64_t first_row = 0;  // of the minibatch: the call's first one

  // The two numbers of a block of elements, of a layer below 2^16.
  TESSERA_HOST_DEVICE uint64_t A(uint64_t layer) const { return layer >> 8 << 48 | step; }
  TESSERA_HOST_DEVICE uint64_t B(uint64_t layer, uint64_t block) const {
    return rank << 48 | (layer & 0xff) << 40 | block;
  }
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_DROPOUT_KEY_H_

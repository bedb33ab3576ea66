// What a device has done in a quicker way than it might have. Results do not show it.
#ifndef TESSERA_KERNELS_SHORTCUTS_H_
#define TESSERA_KERNELS_SHORTCUTS_H_

#include <cstdint>

namespace tessera {

struct Shortcuts {
  int64_t records = 0;          // sequences of kernels that are one launch
  int64_t records_refused = 0;  // sequences that could not be
  int64_t convolutions = 0;     // passes that a library for them was given
  int64_t product_steps = 0;    // of weights, whose gradient did not go to memory
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_SHORTCUTS_H_

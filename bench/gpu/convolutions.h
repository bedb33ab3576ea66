// Convolutions on a GPU: of one size as lines of the table of products and steps, of more in a
// table of their own.
#ifndef TESSERA_BENCH_GPU_CONVOLUTIONS_H_
#define TESSERA_BENCH_GPU_CONVOLUTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "worker/model/network.h"

namespace tessera {

// Forward, weight gradient and input gradient of a middle layer of a network for small images,
// against the device's large product of `limit` FLOP/s. `name` is the precision's, `seconds` how
// long to measure each. `by_products` is the same device without cuDNN: from the first precision on
// in which the other takes that it has lines of its own, and each line tells by what it was done, as
// cuDNN may not know a pass. Fails only where the device does; adds to `wrong` those whose results
// are not the CPU's.
absl::Status TimeConvolutions(const std::string& name, Precision precision, int64_t images,
                              double limit, double seconds, Backend& device, Backend& by_products,
                              int* wrong);

// TFLOP/s of every pass over layers of several networks, in every precision that the device has: by
// `by_cudnn`, which is the device with cuDNN even where it is slower, and by `by_products`. This is
// what says where it is slower (PrefersProducts in kernels/cuda/convolution.cc). Where there is no
// cuDNN, or it does not know a pass, it has a dash. Each is measured for `seconds`, but not for
// long. `wrong` and failures as above.
absl::Status CompareConvolutions(int64_t images, double seconds, Backend& by_cudnn,
                                 Backend& by_products, int* wrong);

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_CONVOLUTIONS_H_

// Linked into a test: copies beside the kernels run as early as they may, while kernels stay as late
// as they may.
#include "tests/kernels/cuda/emulation/faults.h"

namespace tessera::cuda {
namespace {

const bool kEager = Faults().eager_copies = true;

}  // namespace
}  // namespace tessera::cuda

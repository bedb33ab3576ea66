// What all entries of one optimizer's step have in common, as kernels read it.
#ifndef TESSERA_KERNELS_OPTIMIZER_NUMBERS_H_
#define TESSERA_KERNELS_OPTIMIZER_NUMBERS_H_

#include "common/rule/adam.h"
#include "common/rule/rule.h"

namespace tessera {

// Lies in device memory, so that a kernel that is recorded once and repeated steps by the numbers that
// are there by then. Rounded on the host, whatever the device: its powers are not every device's.
struct OptimizerNumbers {
  Update update;
  AdamCoefficients adam;  // of Adam and AdamW alone
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_OPTIMIZER_NUMBERS_H_

// What a kernel does with what lies where it writes.
#ifndef TESSERA_KERNELS_WRITE_MODE_H_
#define TESSERA_KERNELS_WRITE_MODE_H_

namespace tessera {

// Gradients of parameters are sums over rows. Where rows come in pieces the first piece overwrites and
// the others add, so that the last one leaves the sums over all rows. What kOverwrite finds is never
// read: it may be a NaN.
enum class WriteMode { kOverwrite, kAdd };

}  // namespace tessera

#endif  // TESSERA_KERNELS_WRITE_MODE_H_

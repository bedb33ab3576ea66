// The qsgd codec: a bucket of a row is its norm, then `bits` an entry, rounded at random without bias (stochastic.h).
//
// Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding,
// NIPS 2017.
#ifndef TESSERA_COMMON_CODEC_QSGD_H_
#define TESSERA_COMMON_CODEC_QSGD_H_

#include <cstdint>

#include "common/codec/codec.h"
#include "common/codec/entry_form.h"

namespace tessera {

extern const EntryForm kQsgdForm;

// A parameter with fewer entries, wherever they lie, is sent as f32.
constexpr int64_t kQsgdEntriesMin = 10000;

// `bits`: 2 to 8, so that an entry is one of the 2^bits - 1 integers around 0. `bucket`: its entries at most.
// `l2_norm`: else the norm is the largest magnitude.
Codec QsgdCodec(int bits = 8, int64_t bucket = 512, bool l2_norm = false);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_QSGD_H_

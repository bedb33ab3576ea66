// out = (x - centre) * scale for the values of one row: from stored values to model inputs.
//
// One thread, vectorised, bandwidth bound: reads 1 byte (u8) or 4 (f32) and writes 4 for each
// value; the forms with a centre and a scale for each feature read 8 more, from the cache.
#ifndef TESSERA_WORKER_DATA_RESCALE_H_
#define TESSERA_WORKER_DATA_RESCALE_H_

#include <cstdint>

namespace tessera {

void Rescale(const uint8_t* x, int64_t count, float centre, float scale, float* out);
void Rescale(const uint8_t* x, int64_t count, const float* centre, const float* scale, float* out);
void Rescale(const float* x, int64_t count, float centre, float scale, float* out);
void Rescale(const float* x, int64_t count, const float* centre, const float* scale, float* out);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_RESCALE_H_

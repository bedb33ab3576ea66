#include "worker/data/rescale.h"

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Clones need names of their own; overloads do not tell them apart.
TESSERA_VECTOR_CLONES
void U8Uniform(const uint8_t* __restrict x, int64_t count, float centre, float scale,
               float* __restrict out) {
  // Subtracted before it is multiplied, in f32: the same bits in every clone, as contraction is off.
  for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(x[i]) - centre) * scale;
}

TESSERA_VECTOR_CLONES
void U8Each(const uint8_t* __restrict x, int64_t count, const float* __restrict centre,
            const float* __restrict scale, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(x[i]) - centre[i]) * scale[i];
}

TESSERA_VECTOR_CLONES
void F32Uniform(const float* __restrict x, int64_t count, float centre, float scale,
                float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = (x[i] - centre) * scale;
}

TESSERA_VECTOR_CLONES
void F32Each(const float* __restrict x, int64_t count, const float* __restrict centre,
             const float* __restrict scale, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = (x[i] - centre[i]) * scale[i];
}

}  // namespace

void Rescale(const uint8_t* x, int64_t count, float centre, float scale, float* out) {
  U8Uniform(x, count, centre, scale, out);
}

void Rescale(const uint8_t* x, int64_t count, const float* centre, const float* scale, float* out) {
  U8Each(x, count, centre, scale, out);
}

void Rescale(const float* x, int64_t count, float centre, float scale, float* out) {
  F32Uniform(x, count, centre, scale, out);
}

void Rescale(const float* x, int64_t count, const float* centre, const float* scale, float* out) {
  F32Each(x, count, centre, scale, out);
}

}  // namespace tessera

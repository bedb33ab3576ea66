// Extents of row-major matrices, and of matrix products.
#ifndef TESSERA_KERNELS_SHAPE_H_
#define TESSERA_KERNELS_SHAPE_H_

#include <cstdint>

#include "common/layout/image.h"

namespace tessera {

// Activations: a row is an example, a column a neuron.
struct MatrixShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t size() const { return rows * columns; }
};

// A linear layer on a batch: x [rows, inputs], y [rows, outputs], W [outputs, inputs].
struct LinearShape {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
};

// A number of images, each made into another.
struct ImagesShape {
  int64_t rows = 0;
  ImageMap map;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_SHAPE_H_

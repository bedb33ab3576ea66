// The model that is timed: one square matrix between two hidden layers, so that rows and columns are
// both cut.
#ifndef TESSERA_BENCH_SUBNET_MATRIX_H_
#define TESSERA_BENCH_SUBNET_MATRIX_H_

#include <cstdint>

#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"

namespace tessera {

inline ModelShape SquareMatrix(int64_t width) {
  ModelShape shape;
  ParameterSpec spec;
  spec.name = "layers.0.weight";
  spec.rows = width;
  spec.columns = width;
  spec.initial_bound = 1;
  shape.parameters = {spec};
  shape.widths = {width, width};
  shape.images = {{width, 1, 1}, {width, 1, 1}};
  shape.size = spec.size();
  return shape;
}

// Groups 0 and 3 stand for inputs and outputs, which are whole.
inline NeuronGroups BothCut(int64_t width) {
  NeuronGroups groups;
  groups.widths = {1, width, width, 1};
  groups.outputs = 3;
  groups.uses = {{2, 1}};
  groups.activations = {1, 2};
  return groups;
}

// Prints the rates of gather and scatter alone.
void RunGather(int64_t width, int sites, int repetitions);

}  // namespace tessera

#endif  // TESSERA_BENCH_SUBNET_MATRIX_H_

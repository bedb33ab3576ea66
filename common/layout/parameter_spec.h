// One parameter of a model: its name, its shape and its initial values.
#ifndef TESSERA_COMMON_LAYOUT_PARAMETER_SPEC_H_
#define TESSERA_COMMON_LAYOUT_PARAMETER_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// A named tensor: a matrix [rows, columns], or a vector [rows] with columns = 1. A row is an output
// neuron.
struct ParameterSpec {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 1;
  bool is_vector = false;
  // The layer it belongs to: an index into ModelShape::layers.
  int layer = 0;
  // Initial values: uniform in [-bound, bound) from Philox, or `constant` where bound is 0.
  float initial_bound = 0;
  float initial_constant = 0;
  // A convolution's columns: channels, height and width. Empty: no more than `columns`.
  std::vector<int64_t> columns_are = {};

  int64_t size() const { return rows * columns; }
};

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_PARAMETER_SPEC_H_

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
  // The layer it belongs to: an index into ModelShape::layers; -1 in a job of tensors, which has no layers.
  int layer = 0;
  // Initial values from Philox: uniform in [-bound, bound), or normal with a standard deviation; where both are 0 all
  // are `constant`.
  float initial_bound = 0;
  float initial_constant = 0;
  // What the columns are: channels, height and width of a convolution's weight, height and width of a layer norm's on
  // images. Empty: no more than `columns`.
  std::vector<int64_t> columns_are = {};
  // Its layer computes products with it, as linear layers and convolutions do with their weights.
  bool is_factor = false;
  float initial_stddev = 0;
  // A vector of one entry that is a tensor without extents.
  bool is_scalar = false;

  int64_t size() const { return rows * columns; }
};

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_PARAMETER_SPEC_H_

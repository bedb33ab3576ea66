// Models of linear layers, for tests of subnets.
#ifndef TESSERA_TESTS_COMMON_KEYSET_FULLY_CONNECTED_H_
#define TESSERA_TESTS_COMMON_KEYSET_FULLY_CONNECTED_H_

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"

namespace tessera {

// Linear layers of these widths, the first of which is the inputs', and relu between them; with biases and affine
// norms if wanted.
inline v1::Model FullyConnected(const std::vector<int64_t>& widths, bool bias, bool norm) {
  v1::Model model;
  model.add_input(widths.front());
  for (size_t i = 1; i < widths.size(); ++i) {
    v1::Linear* linear = model.add_layers()->mutable_linear();
    linear->set_units(widths[i]);
    linear->set_bias(bias);
    if (norm) model.add_layers()->mutable_batch_norm()->set_affine(true);
    if (i + 1 < widths.size()) model.add_layers()->mutable_relu();
  }
  return model;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_KEYSET_FULLY_CONNECTED_H_

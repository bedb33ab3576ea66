// The mean of an update's pushes, each weighted by the examples it was computed from.
//
//   weight of push j   examples_j / examples of the update's first push, or the square of that
//   scale of the sum   1 / sum of weights
//
// The same mean as with weights examples_j, but equal pushes weigh exactly 1, and the sum stays in
// the range of one push. A push that tells no examples counts as one.
#ifndef TESSERA_COMMON_CONSISTENCY_EXAMPLE_MEAN_H_
#define TESSERA_COMMON_CONSISTENCY_EXAMPLE_MEAN_H_

#include <algorithm>
#include <cstdint>

namespace tessera {

class ExampleMean {
 public:
  explicit ExampleMean(bool squares = false) : squares_(squares) {}

  // The weight of the next push of this update.
  float Add(uint64_t examples) {
    examples = std::max<uint64_t>(1, examples);
    if (weights_ == 0) first_ = examples;
    const double share = static_cast<double>(examples) / first_;
    const float weight = static_cast<float>(squares_ ? share * share : share);
    weights_ += weight;
    return weight;
  }

  // What the sum of this update, which has a push, is multiplied by. The next update begins.
  float Finish() {
    const float scale = 1.0f / static_cast<float>(weights_);
    weights_ = 0;
    return scale;
  }

 private:
  bool squares_;
  double first_ = 1;
  double weights_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_EXAMPLE_MEAN_H_

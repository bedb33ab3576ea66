// The magnitude at which the threshold codec sends an entry: a fixed one, or one that follows the updates so that a
// given share of their entries reaches it.
#ifndef TESSERA_COMMON_CODEC_TAU_H_
#define TESSERA_COMMON_CODEC_TAU_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera {

// Fixed, or led by samples of what is to be sent so that the share `density` of the entries is. One thread.
class Tau {
 public:
  // `fixed` 0: led.
  Tau(double fixed, double density);

  // While it is led and nothing but zeros was seen: so large that nothing is sent.
  float value() const;
  // Magnitudes that Lead would like to see.
  int64_t sample_size() const;
  // Before each update, with the magnitudes of some of its entries, residual included. Follows a
  // single sample by a third, so that its chance does not lead. A fixed one stays.
  void Lead(std::vector<float> magnitudes);
  // All that it goes by, which may be kept and written back; empty where it is fixed. What was never a state
  // of one is as if nothing had been seen.
  absl::Span<float> state();

 private:
  bool is_known() const;

  const float fixed_;  // 0: led
  const double density_;
  std::array<float, 2> state_{};  // the value, and 1 once it is known
};

// The even distance at which about `wanted` of `count` entries lie; odd, so that they do not stay in one
// column of a matrix.
int64_t SampleDistance(int64_t count, int64_t wanted);
// Appends |update + residual| of about `wanted` of the entries, at that distance.
void SampleMagnitudes(const float* update, const float* residual, int64_t count, int64_t wanted,
                      std::vector<float>* magnitudes);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_TAU_H_

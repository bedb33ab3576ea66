// Seconds and their medians, as the benchmarks print them.
#ifndef TESSERA_BENCH_TIMING_TIMING_H_
#define TESSERA_BENCH_TIMING_TIMING_H_

#include <algorithm>
#include <chrono>
#include <vector>

namespace tessera {

// The seconds that `run()` takes.
template <typename Run>
double Seconds(Run&& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median of at least one value; if their number is even, the larger of the two in the middle.
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace tessera

#endif  // TESSERA_BENCH_TIMING_TIMING_H_

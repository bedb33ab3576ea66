// Seconds and their medians.
#ifndef TESSERA_BENCH_SUBNET_TIMING_H_
#define TESSERA_BENCH_SUBNET_TIMING_H_

#include <algorithm>
#include <chrono>
#include <vector>

namespace tessera {

template <typename Run>
double Seconds(Run run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

}  // namespace tessera

#endif  // TESSERA_BENCH_SUBNET_TIMING_H_

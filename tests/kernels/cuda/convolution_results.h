// All passes of a convolution on the played GPU, over small integers, whose sums are exact: whoever computes them has
// the same bits.
#ifndef TESSERA_TESTS_KERNELS_CUDA_CONVOLUTION_RESULTS_H_
#define TESSERA_TESTS_KERNELS_CUDA_CONVOLUTION_RESULTS_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/cuda/convolution.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/scratch.h"

namespace tessera {

template <typename T>
std::vector<T> Integers(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(n);
  for (T& value : values) {
    const float integer = static_cast<float>(random() % 9) - 4;
    if constexpr (std::is_same_v<T, float>) {
      value = integer;
    } else {
      value = RoundToBf16(integer);
    }
  }
  return values;
}

struct Results {
  std::vector<float> y, dw, dx;
  int64_t scratch = 0;       // bytes that were taken
  int64_t promised = 0;      // ScratchBytes
  int64_t convolutions = 0;  // that a library did
};

// Images and their gradients lie `shift` values behind an aligned address.
template <typename T>
Results Compute(const ImagesShape& s, cuda::Product::Factors factors,
                const CudaConvolutionOptions& options, int64_t shift = 0) {
  auto device = cuda::Device::Open(0);
  REQUIRE(device.ok());
  CudaMemory memory(device->get());
  const auto send = [&](const auto& values) {
    using V = typename std::decay_t<decltype(values)>::value_type;
    const auto size = static_cast<int64_t>(values.size());
    auto buffer = Buffer<V>::Create(memory, size + shift);
    REQUIRE(buffer.ok());
    memory.CopyIn(values.data(), size * static_cast<int64_t>(sizeof(V)), buffer->data() + shift);
    return std::move(*buffer);
  };
  const int64_t weights = s.map.to.channels * s.map.from.channels * s.map.window.size();
  const auto x = send(Integers<T>(s.rows * s.map.from.size(), 1)),
             w = send(Integers<T>(weights, 2)), dy = send(Integers<T>(s.rows * s.map.to.size(), 3));
  const auto bias = send(Integers<float>(s.map.to.channels, 4));
  Results results;
  results.y.resize(s.rows * s.map.to.size());
  results.dw = Integers<float>(weights, 5);
  results.dx.resize(s.rows * s.map.from.size());
  const auto y = send(results.y), dw = send(results.dw), dx = send(results.dx);
  REQUIRE((*device)->Synchronize().ok());
  const int64_t free = (*device)->memory_free();
  CudaScratch scratch(&memory);
  Shortcuts shortcuts;
  CudaConvolution<T> convolution(device->get(), factors, &scratch, &shortcuts, options);
  const int64_t promised = convolution.ScratchBytes(s);
  for (int64_t rows = 0; rows <= s.rows; ++rows) {
    CHECK(convolution.ScratchBytes({rows, s.map}) <= promised);
  }
  const auto at = [&](const auto& buffer) { return buffer.data() + shift; };
  const auto read = [&](const Buffer<float>& from, std::vector<float>* to) {
    memory.CopyOut(at(from), static_cast<int64_t>(to->size() * sizeof(float)), to->data());
  };
  convolution.Forward(s, at(x), at(w), at(bias), at(y));
  // The second overwrites what the first has added to.
  convolution.WeightGradient(s, at(x), at(dy), WriteMode::kAdd, at(dw));
  read(dw, &results.dw);
  const std::vector<float> added = results.dw;
  convolution.WeightGradient(s, at(x), at(dy), WriteMode::kOverwrite, at(dw));
  convolution.InputGradient(s, at(dy), at(w), at(dx));
  read(y, &results.y);
  read(dw, &results.dw);
  read(dx, &results.dx);
  results.dw.insert(results.dw.end(), added.begin(), added.end());
  results.scratch = free - (*device)->memory_free();
  results.promised = promised;
  results.convolutions = shortcuts.convolutions;
  REQUIRE((*device)->Synchronize().ok());
  REQUIRE(scratch.TakeStatus().ok());
  return results;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_KERNELS_CUDA_CONVOLUTION_RESULTS_H_

#include "kernels/cpu/response_norm.h"

#include <cmath>

#include "common/base/vector_clones.h"
#include "kernels/power.h"

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {
namespace {

// The window's numbers, rounded once to the f32 that the loops compute in.
struct Numbers {
  explicit Numbers(const ResponseWindow& window)
      : share(static_cast<float>(window.alpha / static_cast<double>(window.size))),
        k(static_cast<float>(window.k)),
        slope(
            static_cast<float>(2 * window.alpha * window.beta / static_cast<double>(window.size))) {
  }
  float share, k, slope;
};

// sums[c] = the sum of values[j] over the channels j in [c - front, c + behind].
TESSERA_INLINE void SumWindows(int64_t channels, int64_t front, int64_t behind, const float* values,
                               float* sums) {
  std::fill_n(sums, channels, 0.0f);
  front = std::min(front, channels - 1);
  behind = std::min(behind, channels - 1);
  for (int64_t offset = -front; offset <= behind; ++offset) {
    const int64_t begin = std::max<int64_t>(0, -offset),
                  end = std::min(channels, channels - offset);
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) sums[c] += values[c + offset];
  }
}

// Writes s = k + alpha / size * (the sum of x^2 in the window) and s^-beta of a row, from which y = x s^-beta
// (Krizhevsky, Sutskever, Hinton 2012). `squares` is a row of room.
TESSERA_INLINE void Powers(int64_t channels, const ResponseWindow& window, const Numbers& numbers,
                           const float* x, float* squares, float* s, float* power) {
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) squares[c] = x[c] * x[c];
  SumWindows(channels, window.front(), window.behind(), squares, s);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) s[c] = numbers.k + numbers.share * s[c];
  // AlexNet's beta of 0.75 is s sqrt(s) under one more root, which is much cheaper than a general power.
  if (window.beta == 0.75) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      const float root = std::sqrt(s[c]);
      power[c] = 1.0f / (root * std::sqrt(root));
    }
  } else {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) power[c] = PowerOf(s[c], -window.beta);
  }
}

// Rows of room that ForwardRow needs: squares, s and the powers.
constexpr int kForwardRows = 3;
TESSERA_VECTOR_CLONES void ForwardRow(int64_t channels, const ResponseWindow& window,
                                      const Numbers& numbers, const float* x, float* room,
                                      float* y) {
  float* const squares = room;
  float* const s = room + channels;
  float* const power = room + 2 * channels;
  Powers(channels, window, numbers, x, squares, s, power);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) y[c] = x[c] * power[c];
}

// Rows of room that BackwardRow needs: terms, s, the powers and the sums of terms.
constexpr int kBackwardRows = 4;
TESSERA_VECTOR_CLONES void BackwardRow(int64_t channels, const ResponseWindow& window,
                                       const Numbers& numbers, const float* x, const float* dy,
                                       float* room, float* dx) {
  float* const terms = room;
  float* const s = room + channels;
  float* const power = room + 2 * channels;
  float* const sums = room + 3 * channels;
  Powers(channels, window, numbers, x, terms, s, power);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) terms[c] = dy[c] * x[c] * power[c] / s[c];
  // Channel c is in the windows of those that have it in front of them and behind them.
  SumWindows(channels, window.behind(), window.front(), terms, sums);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    dx[c] = dy[c] * power[c] - numbers.slope * x[c] * sums[c];
  }
}

// Calls f(row, room of its own) for each row.
template <typename F>
void ForRows(const CpuThreads& threads, const MatrixShape& shape, int rows_of_room,
             std::vector<float>* scratch, const F& f) {
  const int64_t room = rows_of_room * shape.columns;
  const auto wanted = static_cast<size_t>(room * threads.count());
  if (scratch->size() < wanted) scratch->resize(wanted);
  threads.SplitWhole(shape.rows, 8 * shape.columns, [&](int64_t begin, int64_t end) {
    float* const own = scratch->data() + omp_get_thread_num() * room;
    for (int64_t row = begin; row < end; ++row) f(row * shape.columns, own);
  });
}

}  // namespace

void CpuResponseNorm::Forward(const MatrixShape& shape, const ResponseWindow& window,
                              const float* x, float* y) {
  const Numbers numbers(window);
  ForRows(threads_, shape, kForwardRows, &scratch_, [&](int64_t at, float* room) {
    ForwardRow(shape.columns, window, numbers, x + at, room, y + at);
  });
}

void CpuResponseNorm::Backward(const MatrixShape& shape, const ResponseWindow& window,
                               const float* x, const float* dy, float* dx) {
  const Numbers numbers(window);
  ForRows(threads_, shape, kBackwardRows, &scratch_, [&](int64_t at, float* room) {
    BackwardRow(shape.columns, window, numbers, x + at, dy + at, room, dx + at);
  });
}

}  // namespace tessera

#undef TESSERA_INLINE

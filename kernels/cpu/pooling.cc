#include "kernels/cpu/pooling.h"

#include <algorithm>
#include <cstdint>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// The channels that are worked on at a time.
constexpr int64_t kBlock = 256;

// The part of a window that lies in the image: its places, counted from the window's first.
struct Part {
  int64_t y_begin, y_end, x_begin, x_end;
  // The window's first place.
  int64_t y, x;
};

// The part of a window that lies on the image.
Part PartOf(const ImageMap& map, int64_t out_y, int64_t out_x) {
  const Window& w = map.window;
  Part part;
  part.y = out_y * w.stride_y - w.padding_y;
  part.x = out_x * w.stride_x - w.padding_x;
  part.y_begin = std::max<int64_t>(0, -part.y);
  part.x_begin = std::max<int64_t>(0, -part.x);
  part.y_end = std::min(w.height, map.from.height - part.y);
  part.x_end = std::min(w.width, map.from.width - part.x);
  return part;
}

// Calls f(window's place, offset of the image's place in values) row by row.
template <typename F>
void ForEachPlace(const ImageMap& map, const Part& part, const F& f) {
  for (int64_t i = part.y_begin; i < part.y_end; ++i) {
    for (int64_t j = part.x_begin; j < part.x_end; ++j) {
      f(static_cast<int32_t>(i * map.window.width + j),
        ((part.y + i) * map.from.width + part.x + j) * map.from.channels);
    }
  }
}

// Calls f(part, offset of the output's place in values) row by row.
template <typename F>
void ForEachOutput(const ImageMap& map, const F& f) {
  int64_t at = 0;
  for (int64_t y = 0; y < map.to.height; ++y) {
    for (int64_t x = 0; x < map.to.width; ++x, at += map.to.channels) f(PartOf(map, y, x), at);
  }
}

TESSERA_VECTOR_CLONES void TakeLarger(int64_t n, const float* x, float* best) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    // A NaN is taken, as it is not <= anything, and then kept: PyTorch passes NaNs on, too.
    const bool takes = !(x[c] <= best[c]) && best[c] == best[c];
    best[c] = takes ? x[c] : best[c];
  }
}

TESSERA_VECTOR_CLONES void TakeLargerAndWhere(int64_t n, const float* x, int32_t place, float* best,
                                              int32_t* where) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    // A NaN is taken, as it is not <= anything, and then kept: PyTorch passes NaNs on, too.
    const bool takes = !(x[c] <= best[c]) && best[c] == best[c];
    best[c] = takes ? x[c] : best[c];
    where[c] = takes ? place : where[c];
  }
}

TESSERA_VECTOR_CLONES void AddWhere(int64_t n, const float* dy, int32_t place, const int32_t* where,
                                    float* dx) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) dx[c] += where[c] == place ? dy[c] : 0.0f;
}

TESSERA_VECTOR_CLONES void AddTo(int64_t n, const float* x, float* sum) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) sum[c] += x[c];
}

TESSERA_VECTOR_CLONES void AddScaledTo(int64_t n, float factor, const float* x, float* sum) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) sum[c] += factor * x[c];
}

TESSERA_VECTOR_CLONES void Scale(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) x[c] *= factor;
}

// The largest value of each window. The first place is taken as it is, so that padding is never the largest.
void MaxOf(const ImageMap& map, const float* x, float* y) {
  const int64_t channels = map.from.channels;
  ForEachOutput(map, [&](const Part& part, int64_t out) {
    bool first = true;
    ForEachPlace(map, part, [&](int32_t, int64_t in) {
      if (first) {
        std::copy_n(x + in, channels, y + out);
      } else {
        TakeLarger(channels, x + in, y + out);
      }
      first = false;
    });
  });
}

// Sends each gradient to the place that was the largest; of equal ones to the first, as PyTorch does.
void MaxBackwardOf(const ImageMap& map, const float* x, const float* dy, float* dx) {
  std::fill_n(dx, map.from.size(), 0.0f);
  float best[kBlock];
  int32_t where[kBlock];
  ForEachOutput(map, [&](const Part& part, int64_t out) {
    for (int64_t c = 0; c < map.from.channels; c += kBlock) {
      const int64_t n = std::min(kBlock, map.from.channels - c);
      bool first = true;
      ForEachPlace(map, part, [&](int32_t place, int64_t in) {
        if (first) {
          std::copy_n(x + in + c, n, best);
          std::fill_n(where, n, place);
        } else {
          TakeLargerAndWhere(n, x + in + c, place, best, where);
        }
        first = false;
      });
      ForEachPlace(map, part, [&](int32_t place, int64_t in) {
        AddWhere(n, dy + out + c, place, where, dx + in + c);
      });
    }
  });
}

float Share(const ImageMap& map) { return 1.0f / static_cast<float>(map.window.size()); }

// The mean of each window, in which padding counts as zeros.
void AverageOf(const ImageMap& map, const float* x, float* y) {
  const int64_t channels = map.from.channels;
  ForEachOutput(map, [&](const Part& part, int64_t out) {
    std::fill_n(y + out, channels, 0.0f);
    ForEachPlace(map, part, [&](int32_t, int64_t in) { AddTo(channels, x + in, y + out); });
    Scale(channels, Share(map), y + out);
  });
}

// Sends each gradient, in equal shares, to all places of its window.
void AverageBackwardOf(const ImageMap& map, const float* dy, float* dx) {
  std::fill_n(dx, map.from.size(), 0.0f);
  ForEachOutput(map, [&](const Part& part, int64_t out) {
    ForEachPlace(map, part, [&](int32_t, int64_t in) {
      AddScaledTo(map.from.channels, Share(map), dy + out, dx + in);
    });
  });
}

}  // namespace

void CpuPooling::Max(const ImagesShape& shape, const float* x, float* y) {
  const ImageMap& map = shape.map;
  threads_.SplitWhole(shape.rows, map.from.size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      MaxOf(map, x + row * map.from.size(), y + row * map.to.size());
    }
  });
}

void CpuPooling::MaxBackward(const ImagesShape& shape, const float* x, const float* dy, float* dx) {
  const ImageMap& map = shape.map;
  threads_.SplitWhole(shape.rows, map.from.size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      MaxBackwardOf(map, x + row * map.from.size(), dy + row * map.to.size(),
                    dx + row * map.from.size());
    }
  });
}

void CpuPooling::Average(const ImagesShape& shape, const float* x, float* y) {
  const ImageMap& map = shape.map;
  threads_.SplitWhole(shape.rows, map.from.size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      AverageOf(map, x + row * map.from.size(), y + row * map.to.size());
    }
  });
}

void CpuPooling::AverageBackward(const ImagesShape& shape, const float* dy, float* dx) {
  const ImageMap& map = shape.map;
  threads_.SplitWhole(shape.rows, map.from.size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      AverageBackwardOf(map, dy + row * map.to.size(), dx + row * map.from.size());
    }
  });
}

}  // namespace tessera

#include "kernels/cpu/patch_convolution.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dnnl.h"

namespace tessera {
namespace {

// The places that a thread multiplies at a time, and the bytes that their patches take at most, unless one alone does.
// On an EPYC with AVX2 128 to 1,024 places made little difference.
constexpr int64_t kPlacesMax = 128;
constexpr int64_t kPatchBytesMax = int64_t{4} << 20;

// Whether what a place of y sees of x is a row of x as it is.
bool SeesItself(const ImageMap& map) {
  return map.window == Window() && map.from.positions() == map.to.positions();
}

// Writes the patches of the places [begin, end) of `map.to` in x, all images counted on: by the window's rows, columns,
// channels.
void WritePatches(const ImageMap& map, const float* x, int64_t begin, int64_t end, float* out) {
  const Image &from = map.from, &to = map.to;
  const Window& w = map.window;
  const int64_t channels = from.channels, line = w.width * channels;
  for (int64_t place = begin; place < end; ++place) {
    const float* const image = x + place / to.positions() * from.size();
    const int64_t row = place % to.positions() / to.width * w.stride_y - w.padding_y;
    const int64_t column = place % to.width * w.stride_x - w.padding_x;
    for (int64_t i = 0; i < w.height; ++i) {
      const int64_t y = row + i * w.dilation_y;
      if (y < 0 || y >= from.height) {
        out = std::fill_n(out, line, 0.0f);
        continue;
      }
      const float* const in = image + y * from.width * channels;
      if (w.dilation_x == 1) {
        // What lies side by side in the window does so in the image.
        const int64_t first = std::clamp<int64_t>(-column, 0, w.width);
        const int64_t last = std::clamp<int64_t>(from.width - column, first, w.width);
        out = std::fill_n(out, first * channels, 0.0f);
        out = std::copy_n(in + (column + first) * channels, (last - first) * channels, out);
        out = std::fill_n(out, (w.width - last) * channels, 0.0f);
        continue;
      }
      for (int64_t j = 0; j < w.width; ++j) {
        const int64_t at = column + j * w.dilation_x;
        out = at < 0 || at >= from.width ? std::fill_n(out, channels, 0.0f)
                                         : std::copy_n(in + at * channels, channels, out);
      }
    }
  }
}

// The convolution that makes dx out of dy, where windows do not stride.
ImageMap Turned(const ImageMap& map) {
  ImageMap turned = map;
  std::swap(turned.from, turned.to);
  turned.window.padding_y = map.window.span_y() - 1 - map.window.padding_y;
  turned.window.padding_x = map.window.span_x() - 1 - map.window.padding_x;
  return turned;
}

// [outer, channels, places] -> [outer, places, channels], for outer in [begin, end).
void PlacesFirst(const ImageMap& map, int64_t begin, int64_t end, const float* weight, float* out) {
  const int64_t channels = map.from.channels, places = map.window.size();
  for (int64_t o = begin; o < end; ++o) {
    const float* const in = weight + o * map.weight_columns();
    float* const to = out + o * map.weight_columns();
    for (int64_t p = 0; p < places; ++p) {
      for (int64_t c = 0; c < channels; ++c) to[p * channels + c] = in[c * places + p];
    }
  }
}

// And back, onto what is there where `adds`.
void ChannelsFirst(const ImageMap& map, int64_t begin, int64_t end, const float* in, bool adds,
                   float* weight) {
  const int64_t channels = map.from.channels, places = map.window.size();
  for (int64_t o = begin; o < end; ++o) {
    const float* const from = in + o * map.weight_columns();
    float* const out = weight + o * map.weight_columns();
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < places; ++p) {
        const float value = from[p * channels + c];
        out[c * places + p] = adds ? out[c * places + p] + value : value;
      }
    }
  }
}

// The weights of the turned convolution: [channels of x, places from the last to the first, channels of y], for
// channels of x in [begin, end).
void TurnWeights(const ImageMap& map, int64_t begin, int64_t end, const float* weight, float* out) {
  // Weights of channels of x that lie side by side are read together.
  constexpr int64_t kTogether = 16;
  const int64_t channels = map.to.channels, places = map.window.size();
  for (int64_t first = begin; first < end; first += kTogether) {
    const int64_t last = std::min(end, first + kTogether);
    for (int64_t o = 0; o < channels; ++o) {
      const float* in = weight + o * map.weight_columns() + first * places;
      for (int64_t c = first; c < last; ++c) {
        float* const to = out + c * places * channels + o;
        for (int64_t p = places - 1; p >= 0; --p) to[p * channels] = *in++;
      }
    }
  }
}

float* Room(std::vector<float>* values, int64_t size) {
  if (static_cast<int64_t>(values->size()) < size) values->resize(static_cast<size_t>(size));
  return values->data();
}

}  // namespace

void CpuPatchConvolution::Multiply(int64_t rows, int64_t columns, int64_t depth, const float* a,
                                   bool a_is_turned, const float* b, bool b_is_turned, bool adds,
                                   float* c) {
  const dnnl_status_t status = dnnl_sgemm(
      a_is_turned ? 'T' : 'N', b_is_turned ? 'T' : 'N', rows, columns, depth, 1.0f, a,
      a_is_turned ? rows : depth, b, b_is_turned ? depth : columns, adds ? 1.0f : 0.0f, c, columns);
  if (status == dnnl_success) return;
  const std::string what = absl::StrCat("oneDNN: product of ", rows, " x ", depth, " and ", depth,
                                        " x ", columns, ": status ", static_cast<int>(status));
  status_.Update(status == dnnl_out_of_memory ? absl::ResourceExhaustedError(what)
                                              : absl::InternalError(what));
}

template <typename F>
void CpuPatchConvolution::ForEachBlock(const ImagesShape& shape, const float* x, const F& f) {
  threads_.Enter();
  const ImageMap& map = shape.map;
  const int64_t places = shape.rows * map.to.positions(), size = map.weight_columns();
  const int64_t fitting = kPatchBytesMax / (size * static_cast<int64_t>(sizeof(float)));
  const int64_t most = std::clamp<int64_t>(fitting, 1, kPlacesMax) * threads_.count();
  for (int64_t begin = 0; begin < places; begin += most) {
    const int64_t count = std::min(most, places - begin);
    if (SeesItself(map)) {
      f(Block{begin, count, x + begin * size});
      continue;
    }
    float* const patches = Room(&patches_, most * size);
    threads_.SplitWhole(count, size, [&](int64_t first, int64_t last) {
      WritePatches(map, x, begin + first, begin + last, patches + first * size);
    });
    f(Block{begin, count, patches});
  }
}

void CpuPatchConvolution::Forward(const ImagesShape& shape, const float* x, const float* weight,
                                  const float* bias, float* y) {
  const ImageMap& map = shape.map;
  const int64_t channels = map.to.channels, size = map.weight_columns();
  if (map.window.size() > 1) {
    float* const turned = Room(&weights_, map.weight_size());
    threads_.SplitWhole(channels, size, [&](int64_t begin, int64_t end) {
      PlacesFirst(map, begin, end, weight, turned);
    });
    weight = turned;
  }
  ForEachBlock(shape, x, [&](const Block& block) {
    float* const out = y + block.begin * channels;
    if (bias != nullptr) {
      for (int64_t i = 0; i < block.count; ++i) std::copy_n(bias, channels, out + i * channels);
    }
    Multiply(block.count, channels, size, block.patches, false, weight, true, bias != nullptr, out);
  });
}

void CpuPatchConvolution::WeightGradient(const ImagesShape& shape, const float* x, const float* dy,
                                         WriteMode mode, float* dweight) {
  const ImageMap& map = shape.map;
  const bool adds = mode == WriteMode::kAdd;
  const int64_t channels = map.to.channels, size = map.weight_columns();
  if (shape.rows == 0) {
    if (!adds) std::fill_n(dweight, map.weight_size(), 0.0f);
    return;
  }
  // The gradient of a window of one place lies as the caller wants it.
  const bool is_plain = map.window.size() == 1;
  float* const gradient = is_plain ? dweight : Room(&weights_, map.weight_size());
  ForEachBlock(shape, x, [&](const Block& block) {
    Multiply(channels, size, block.count, dy + block.begin * channels, true, block.patches, false,
             block.begin > 0 || (is_plain && adds), gradient);
  });
  if (is_plain) return;
  threads_.SplitWhole(channels, size, [&](int64_t begin, int64_t end) {
    ChannelsFirst(map, begin, end, gradient, adds, dweight);
  });
}

void CpuPatchConvolution::InputGradient(const ImagesShape& shape, const float* dy,
                                        const float* weight, float* dx) {
  const ImageMap& map = shape.map;
  const ImagesShape turned{shape.rows, Turned(map)};
  const int64_t channels = map.from.channels;
  float* const weights = Room(&weights_, map.weight_size());
  threads_.SplitWhole(channels, turned.map.weight_columns(), [&](int64_t begin, int64_t end) {
    TurnWeights(map, begin, end, weight, weights);
  });
  ForEachBlock(turned, dy, [&](const Block& block) {
    Multiply(block.count, channels, turned.map.weight_columns(), block.patches, false, weights,
             true, false, dx + block.begin * channels);
  });
}

absl::Status CpuPatchConvolution::TakeStatus() {
  absl::Status status = std::move(status_);
  status_ = absl::OkStatus();
  return status;
}

}  // namespace tessera

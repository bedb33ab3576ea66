// Pooling, to the bit: the order of every sum is given, and so is the answer where values are equally
// large.
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

// Channels, height and width of x; height, width, strides and paddings of the window.
ImagesShape Of(int64_t rows, const Image& from, const Window& window) {
  return {rows, MapOf(from, window, from.channels)};
}

const std::vector<ImagesShape>& Shapes() {
  static const std::vector<ImagesShape> shapes = {
      Of(0, {3, 4, 4}, {2, 2, 2, 2, 0, 0}),     Of(1, {1, 1, 1}, {}),
      Of(1, {1, 2, 3}, {2, 3, 1, 1, 1, 2}),     Of(3, {3, 6, 4}, {2, 2, 2, 2, 0, 0}),
      Of(2, {16, 7, 6}, {3, 3, 2, 2, 1, 1}),    Of(2, {17, 5, 6}, {3, 3, 1, 1, 1, 1}),
      Of(3, {33, 4, 7}, {4, 7, 1, 1, 0, 0}),    Of(2, {4, 9, 5}, {3, 2, 2, 1, 1, 0}),
      Of(2, {3, 10, 11}, {2, 3, 4, 5, 0, 1}),   Of(2, {8, 4, 6}, {3, 5, 1, 1, 2, 4}),
      Of(1, {300, 3, 3}, {2, 2, 1, 1, 1, 1}),   Of(3, {5, 9, 1}, {5, 1, 1, 1, 2, 0}),
      Of(17, {16, 12, 12}, {3, 3, 2, 2, 1, 1}), Of(3, {8, 7, 6}, {2, 2, 3, 2, 1, 0}),
      Of(5, {36, 4, 7}, {4, 7, 1, 1, 0, 0}),    Of(2, {4, 9, 6}, {3, 6, 3, 1, 1, 0}),
      Of(2, {5, 4, 8}, {4, 2, 1, 1, 0, 0})};
  return shapes;
}

// An offset in x for each place of each window that lies in the image, row by row.
using Places = std::vector<std::vector<int64_t>>;

// By offset in y.
Places PlacesOf(const ImagesShape& s) {
  const Image &from = s.map.from, &to = s.map.to;
  const Window& w = s.map.window;
  Places places;
  for (int64_t n = 0; n < s.rows; ++n) {
    for (int64_t oy = 0; oy < to.height; ++oy) {
      for (int64_t ox = 0; ox < to.width; ++ox) {
        for (int64_t c = 0; c < to.channels; ++c) {
          places.emplace_back();
          for (int64_t i = 0; i < w.height; ++i) {
            for (int64_t j = 0; j < w.width; ++j) {
              const int64_t y = oy * w.stride_y - w.padding_y + i;
              const int64_t x = ox * w.stride_x - w.padding_x + j;
              if (y < 0 || y >= from.height || x < 0 || x >= from.width) continue;
              places.back().push_back(((n * from.height + y) * from.width + x) * from.channels + c);
            }
          }
        }
      }
    }
  }
  return places;
}

// Where the largest value lies.
int64_t Largest(const std::vector<float>& x, const std::vector<int64_t>& places) {
  for (const int64_t place : places) {
    if (std::isnan(x[place])) return place;
  }
  float largest = -INFINITY;
  for (const int64_t place : places) largest = std::max(largest, x[place]);
  for (const int64_t place : places) {
    if (x[place] == largest) return place;
  }
  FAIL("a window without a place");
  return 0;
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The bits, or where arithmetic makes a NaN any NaN.
void CheckValues(const std::vector<float>& want, const std::vector<float>& got, bool nans_too) {
  REQUIRE(got.size() == want.size());
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool is_nan = !nans_too && std::isnan(want[i]) && std::isnan(got[i]);
    wrong += is_nan || BitsOf(want[i]) == BitsOf(got[i]) ? 0 : 1;
  }
  REQUIRE(wrong == 0);
}

void CheckShape(Backend& backend, const ImagesShape& s, const std::vector<float>& x,
                const std::vector<float>& dy, int64_t shift) {
  const Window& window = s.map.window;
  CAPTURE(s.rows, s.map.from.channels, s.map.from.height, s.map.from.width, window.height,
          window.width, window.stride_y, window.stride_x, window.padding_y, window.padding_x,
          shift);
  const Places places = PlacesOf(s);
  const float share = 1.0f / static_cast<float>(window.size());
  std::vector<float> max, average, max_dx(x.size()), average_dx(x.size());
  for (size_t out = 0; out < places.size(); ++out) {
    const int64_t largest = Largest(x, places[out]);
    max.push_back(x[largest]);
    max_dx[largest] += dy[out];
    float sum = 0;
    for (const int64_t place : places[out]) {
      sum += x[place];
      average_dx[place] += share * dy[out];
    }
    average.push_back(sum * share);
  }

  const DeviceArray<float> dev_x(backend, x, shift), dev_dy(backend, dy, shift);
  const std::vector<float> garbage_x(x.size(), NAN), garbage_y(dy.size(), NAN);
  const DeviceArray<float> got_max(backend, garbage_y, shift),
      got_average(backend, garbage_y, shift), got_max_dx(backend, garbage_x, shift),
      got_average_dx(backend, garbage_x, shift);
  PoolingKernel& pooling = backend.pooling();
  pooling.Max(s, dev_x.data(), got_max.data());
  pooling.MaxBackward(s, dev_x.data(), dev_dy.data(), got_max_dx.data());
  pooling.Average(s, dev_x.data(), got_average.data());
  pooling.AverageBackward(s, dev_dy.data(), got_average_dx.data());
  CheckValues(max, got_max.Read(), true);
  CheckValues(max_dx, got_max_dx.Read(), false);
  CheckValues(average, got_average.Read(), false);
  CheckValues(average_dx, got_average_dx.Read(), false);
}

int64_t SizeOfX(const ImagesShape& s) { return s.rows * s.map.from.size(); }
int64_t SizeOfY(const ImagesShape& s) { return s.rows * s.map.to.size(); }

// Each of them with its probability of one in values.size().
std::vector<float> Chosen(int64_t n, unsigned seed, const std::vector<float>& values) {
  std::mt19937 random(seed);
  std::vector<float> chosen(n);
  for (float& value : chosen) value = values[random() % values.size()];
  return chosen;
}

}  // namespace

TEST_CASE("pooling does its rule to the bit", "[pooling]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const int64_t shift : {0, 1}) {
    for (const ImagesShape& s : Shapes()) {
      CheckShape(*backend, s, RandomValues(SizeOfX(s), 1), RandomValues(SizeOfY(s), 2), shift);
    }
  }
}

// Places times places would be more than a billion.
TEST_CASE("a window as large as the image takes no longer than the image", "[pooling]") {
  const auto backend = BackendUnderTest(1);
  const ImagesShape s = Of(1, {4, 224, 224}, {224, 224, 1, 1, 0, 0});
  CheckShape(*backend, s, RandomValues(SizeOfX(s), 1), RandomValues(SizeOfY(s), 2), 0);
}

TEST_CASE("the first one of equally large values has the gradient, zeros of both signs included",
          "[pooling]") {
  const auto backend = BackendUnderTest(1);
  for (const ImagesShape& s : Shapes()) {
    const std::vector<float> dy = RandomValues(SizeOfY(s), 2);
    CheckShape(*backend, s, Chosen(SizeOfX(s), 3, {0.0f, -0.0f, -1.0f}), dy, 0);
    CheckShape(*backend, s, Chosen(SizeOfX(s), 4, {-0.0f, 2.0f}), dy, 0);
    CheckShape(*backend, s, std::vector<float>(SizeOfX(s), -3.0f), dy, 0);
  }
}

TEST_CASE("the first NaN of a window is its largest value, and infinities have their places",
          "[pooling]") {
  const auto backend = BackendUnderTest(1);
  const float first = FromBits(0x7fc00001u), second = FromBits(0xffc00002u);
  for (const ImagesShape& s : Shapes()) {
    const std::vector<float> dy = RandomValues(SizeOfY(s), 2);
    CheckShape(*backend, s, Chosen(SizeOfX(s), 5, {first, second, INFINITY, -INFINITY, 1, 2, 3}),
               dy, 0);
    CheckShape(*backend, s, Chosen(SizeOfX(s), 6, {first, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), dy, 0);
    CheckShape(*backend, s, Chosen(SizeOfX(s), 7, {INFINITY, -INFINITY}), dy, 0);
    CheckShape(*backend, s, std::vector<float>(SizeOfX(s), -INFINITY), dy, 0);
    CheckShape(*backend, s, Chosen(SizeOfX(s), 8, {first, second}), dy, 0);
    CheckShape(*backend, s, RandomValues(SizeOfX(s), 1),
               Chosen(SizeOfY(s), 9, {NAN, INFINITY, -INFINITY, 1, 2, -0.0f}), 0);
  }
}

}  // namespace tessera

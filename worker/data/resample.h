// Pictures at another size: bilinear with antialiasing, as Pillow's Image.resize(size, BILINEAR) computes it.
//
// A value of the result is a mean of the values around its place, weighted by a triangle that is as wide as one step of
// the result, or of the source where that is larger. Bytes are summed in fixed point with 22 binary places, first along
// rows and then along columns, each rounded to a byte: the bytes are Pillow's own.
#ifndef TESSERA_WORKER_DATA_RESAMPLE_H_
#define TESSERA_WORKER_DATA_RESAMPLE_H_

#include <cstdint>
#include <vector>

#include "worker/data/rectangle.h"

namespace tessera {

// The values [begin, end) of `from` that values [begin, begin + count) of the `to` they are scaled to are made of.
struct Reach {
  int64_t begin = 0;
  int64_t end = 0;
};
Reach ReachOf(int64_t from, int64_t to, int64_t begin, int64_t count);

// Keeps its buffers from call to call. One thread.
class Resampler {
 public:
  // `source` is `height` x `width` pixels of `channels` values side by side, of which there may be 1 or 4. Its part
  // `from`, which has at least one pixel and lies within the source, is scaled to `to_height` x `to_width`, and of that
  // the part `window` goes to `out`. What lies outside `from` has no influence.
  void Resize(const uint8_t* source, int64_t width, int channels, const Rectangle& from,
              int64_t to_height, int64_t to_width, const Rectangle& window, uint8_t* out);
  // Resizes numbers, one value per pixel, as bytes are resized. Sums are in double, each pass rounded to a float.
  void Resize(const float* source, int64_t width, const Rectangle& from, int64_t to_height,
              int64_t to_width, float* out);

 private:
  // Value i of the result is the sum over weights [i * taps, i * taps + count[i]) of the values from first[i] on.
  struct Weights {
    int64_t taps = 0;
    std::vector<int32_t> first;
    std::vector<int32_t> count;
    std::vector<double> exact;
    std::vector<int32_t> fixed;
    // The fixed weights once more, in the order in which four pixels are read at once, and where these begin.
    std::vector<int32_t> quad_first;
    std::vector<int16_t> high;
    std::vector<int16_t> low;
  };
  // Values [begin, begin + count) of the `to` that `from` values are scaled to.
  static void SetWeights(int64_t from, int64_t to, int64_t begin, int64_t count, Weights* weights);
  // Returns how many times four pixels one output pixel is made of at most; 0: this CPU, or a part so narrow, reads
  // them one by one.
  static int64_t QuadsOf(int64_t from, const Weights& weights);
  static void SplitWeights(int64_t from, int64_t quads, Weights* weights);

  Weights across_;
  Weights down_;
  std::vector<uint8_t> bytes_;
  std::vector<float> floats_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_RESAMPLE_H_

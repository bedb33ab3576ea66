// Changes at random of the training rows, which are images (data.augment).
//
// What is drawn for a row is a pure function of (seed, epoch, row), where the row's number is that in the whole data
// set: it is the same on any number of workers, after a restore, and on any device. With the words w[0] to w[3] of
// Philox(seed, kAugment, epoch, row), and u(w) = w / 2^32:
//
//   flip          the image is mirrored if w[0] is odd
//   crop          the window begins at row floor(u(w[1]) (2 padding + 1)) and column floor(u(w[2]) (2 padding + 1)) of
//                 the image with its border
//   resized_crop  attempts t = 1 to 10 draw w from Philox(seed, kAugment, epoch, row | t << 32). With S = [scale] and
//                 R = [ratio], the area is A = H W (S0 + (S1 - S0) u(w[0])) and the ratio
//                 r = exp(log R0 + (log R1 - log R0) u(w[1])); the width is round(sqrt(A r)) and the height
//                 round(sqrt(A / r)). The first attempt that fits begins at row floor(u(w[2]) (H - height + 1)) and
//                 column floor(u(w[3]) (W - width + 1)). If none fits the largest window in the middle is taken whose
//                 ratio is in R. That is RandomResizedCrop of PyTorch's torchvision.
//
// The border is zeros of the values as the file has them, before they are normalised, as RandomCrop of torchvision does
// on pictures. A crop comes before the flip. Evaluations and the calibration of batch norm see rows as they are.
#ifndef TESSERA_WORKER_DATA_AUGMENTATION_H_
#define TESSERA_WORKER_DATA_AUGMENTATION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/data/rectangle.h"

namespace tessera {

class Resampler;

// Whether `augment` changes rows: a part of it is on where it has a size.
bool Augments(const v1::Augment& augment);

// Constant after construction.
class Augmentation {
 public:
  // An augmentation that changes nothing.
  Augmentation() = default;
  // `input` is model.input, [channels, height, width].
  Augmentation(const v1::Augment& augment, uint64_t seed, absl::Span<const int64_t> input);

  // Whether no row is changed.
  bool empty() const { return !flips_ && padding_ == 0 && !resizes_; }
  // Whether resized_crop is wanted.
  bool resizes() const { return resizes_; }
  // What remains to be done for rows that were made by ResizedCropOf already.
  Augmentation WithoutResizedCrop() const;

  // `row`, whose values are `x` in the order [channel, height, width], as epoch `epoch` has it. `x` and `out` do not
  // overlap. `resampler` is the caller's.
  void Apply(const uint8_t* x, uint64_t epoch, uint32_t row, Resampler* resampler,
             uint8_t* out) const;
  void Apply(const float* x, uint64_t epoch, uint32_t row, Resampler* resampler, float* out) const;

  // The parts of the formula above. The second is the place of the window in the image with its border.
  bool Flips(uint64_t epoch, uint32_t row) const;
  Rectangle CropOf(uint64_t epoch, uint32_t row) const;
  Rectangle ResizedCropOf(uint64_t epoch, uint32_t row, int64_t height, int64_t width) const;

 private:
  template <typename Value>
  void ApplyTo(const Value* x, uint64_t epoch, uint32_t row, Resampler* resampler,
               Value* out) const;
  template <typename Value>
  void Crop(const Value* x, const Rectangle& window, Value* out) const;
  template <typename Value>
  void Mirror(Value* values) const;

  uint64_t seed_ = 0;
  int64_t channels_ = 0;
  int64_t height_ = 0;
  int64_t width_ = 0;
  bool flips_ = false;
  int64_t padding_ = 0;
  bool resizes_ = false;
  double scale_[2] = {0.08, 1};
  double ratio_[2] = {3.0 / 4, 4.0 / 3};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_AUGMENTATION_H_

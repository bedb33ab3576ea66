#include "worker/data/augmentation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/base/philox.h"
#include "worker/data/resample.h"

namespace tessera {
namespace {

// As torchvision's RandomResizedCrop, which tries ten times as well and then takes the middle.
constexpr int kAttempts = 10;

double Unit(uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

// A number in [0, count).
int64_t Below(int64_t count, uint32_t word) {
  // The upper half of the product: no division, and a bias below 2^-32 * count.
  return static_cast<int64_t>((static_cast<uint64_t>(count) * word) >> 32);
}

PhiloxBlock BlockOf(uint64_t seed, uint64_t epoch, uint32_t row, uint64_t attempt) {
  // Attempt 0 is the flip and the crop, the others are those of resized crops.
  return Philox(seed, Stream::kAugment, epoch, row | attempt << 32);
}

void Scale(const uint8_t* x, const Rectangle& from, int64_t height, int64_t width,
           Resampler* resampler, uint8_t* out) {
  resampler->Resize(x, width, 1, from, height, width, {0, 0, height, width}, out);
}

void Scale(const float* x, const Rectangle& from, int64_t height, int64_t width,
           Resampler* resampler, float* out) {
  resampler->Resize(x, width, from, height, width, out);
}

}  // namespace

bool Augments(const v1::Augment& augment) {
  return !augment.flip().empty() || augment.crop().padding() > 0 ||
         augment.resized_crop().size() > 0;
}

Augmentation::Augmentation(const v1::Augment& augment, uint64_t seed,
                           absl::Span<const int64_t> input)
    : seed_(seed),
      flips_(!augment.flip().empty()),
      padding_(augment.crop().padding()),
      resizes_(augment.resized_crop().size() > 0) {
  TESSERA_CHECK(input.size() == 3);
  channels_ = input[0];
  height_ = input[1];
  width_ = input[2];
  const v1::ResizedCrop& crop = augment.resized_crop();
  if (crop.scale_size() == 2) std::copy_n(crop.scale().begin(), 2, scale_);
  if (crop.ratio_size() == 2) std::copy_n(crop.ratio().begin(), 2, ratio_);
}

Augmentation Augmentation::WithoutResizedCrop() const {
  Augmentation rest = *this;
  rest.resizes_ = false;
  return rest;
}

bool Augmentation::Flips(uint64_t epoch, uint32_t row) const {
  return flips_ && (BlockOf(seed_, epoch, row, 0)[0] & 1) != 0;
}

Rectangle Augmentation::CropOf(uint64_t epoch, uint32_t row) const {
  const PhiloxBlock words = BlockOf(seed_, epoch, row, 0);
  const int64_t places = 2 * padding_ + 1;
  return {Below(places, words[1]), Below(places, words[2]), height_, width_};
}

Rectangle Augmentation::ResizedCropOf(uint64_t epoch, uint32_t row, int64_t height,
                                      int64_t width) const {
  const auto area = static_cast<double>(height) * static_cast<double>(width);
  // Uniform in the logarithm, so that a ratio and its inverse are equally likely.
  const double log_least = std::log(ratio_[0]), log_most = std::log(ratio_[1]);
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const PhiloxBlock words = BlockOf(seed_, epoch, row, attempt);
    const double part = area * (scale_[0] + (scale_[1] - scale_[0]) * Unit(words[0]));
    const double ratio = std::exp(log_least + (log_most - log_least) * Unit(words[1]));
    const auto w = static_cast<int64_t>(std::lrint(std::sqrt(part * ratio)));
    const auto h = static_cast<int64_t>(std::lrint(std::sqrt(part / ratio)));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    return {Below(height - h + 1, words[2]), Below(width - w + 1, words[3]), h, w};
  }
  // No attempt fitted: the largest part of the middle whose ratio is allowed.
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width, h = height;
  if (ratio < ratio_[0]) {
    h = static_cast<int64_t>(std::lrint(static_cast<double>(w) / ratio_[0]));
  } else if (ratio > ratio_[1]) {
    w = static_cast<int64_t>(std::lrint(static_cast<double>(h) * ratio_[1]));
  }
  h = std::clamp<int64_t>(h, 1, height);
  w = std::clamp<int64_t>(w, 1, width);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

template <typename Value>
void Augmentation::Crop(const Value* x, const Rectangle& window, Value* out) const {
  // The border is never made: rows and columns outside of the image are written as zeros.
  // The window's rows and columns in the image without its border, which may be outside of it.
  const int64_t top = window.top - padding_, left = window.left - padding_;
  const int64_t begin = std::clamp<int64_t>(-left, 0, width_);
  const int64_t end = std::max(begin, std::min(width_, width_ - left));
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t y = 0; y < height_; ++y, out += width_) {
      const int64_t from = y + top;
      if (from < 0 || from >= height_ || begin == end) {
        std::memset(out, 0, width_ * sizeof(Value));
        continue;
      }
      const Value* const row = x + (c * height_ + from) * width_;
      std::memset(out, 0, begin * sizeof(Value));
      std::memcpy(out + begin, row + begin + left, (end - begin) * sizeof(Value));
      std::memset(out + end, 0, (width_ - end) * sizeof(Value));
    }
  }
}

template <typename Value>
void Augmentation::Mirror(Value* values) const {
  for (int64_t row = 0; row < channels_ * height_; ++row, values += width_) {
    std::reverse(values, values + width_);
  }
}

template <typename Value>
void Augmentation::ApplyTo(const Value* x, uint64_t epoch, uint32_t row, Resampler* resampler,
                           Value* out) const {
  const int64_t plane = height_ * width_;
  if (resizes_) {
    const Rectangle from = ResizedCropOf(epoch, row, height_, width_);
    for (int64_t c = 0; c < channels_; ++c) {
      Scale(x + c * plane, from, height_, width_, resampler, out + c * plane);
    }
  } else if (padding_ > 0) {
    Crop(x, CropOf(epoch, row), out);
  } else {
    std::memcpy(out, x, channels_ * plane * sizeof(Value));
  }
  if (Flips(epoch, row)) Mirror(out);
}

void Augmentation::Apply(const uint8_t* x, uint64_t epoch, uint32_t row, Resampler* resampler,
                         uint8_t* out) const {
  ApplyTo(x, epoch, row, resampler, out);
}

void Augmentation::Apply(const float* x, uint64_t epoch, uint32_t row, Resampler* resampler,
                         float* out) const {
  ApplyTo(x, epoch, row, resampler, out);
}

}  // namespace tessera

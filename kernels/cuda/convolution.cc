#include "kernels/cuda/convolution.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/convolution_kernels.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/vector_kernels.h"

namespace tessera {
namespace {

using Factors = cuda::Product::Factors;
using Kind = cuda::ConvolutionPass::Kind;

// What products are faster at, though cuDNN may know it, as bench/gpu measured on an H200. In tf32
// and bf16, with strides of 1 and 64 channels or more, cuDNN is 1.1 to 5.7 times as fast (but 0.8
// for bf16's gradient of weights of 256 channels); products are 1.5 to 5.6 times as fast with 1 or
// 3 channels, and 1.2 to 2.9 times by 2 (but 0.8 for tf32's gradient of inputs). In exact f32 cuDNN
// has 1.03 times their rate at best. Between 3 and 64 channels nothing was measured: 32 is a guess. Several groups are
// as many products, which are small; nothing was measured of them either.
bool PrefersProducts(Factors factors, const ImageMap& map) {
  constexpr int64_t kChannelsMin = 32;
  const Window& window = map.window;
  if (map.groups > 1) return false;
  return factors == Factors::kF32 || window.stride_y > 1 || window.stride_x > 1 ||
         std::min(map.from.channels, map.to.channels) < kChannelsMin;
}

// The columns of the patches: those of the weights of all groups, one beside the other.
int64_t ColumnsOf(const ImageMap& map) { return map.from.channels * map.window.size(); }

// The most that a launch numbers of an image.
int64_t ItemsOf(const ImageMap& map) {
  return std::max({map.from.size(), map.to.positions(), ColumnsOf(map)});
}

// A window of one place, without strides or padding, sees each place once: the images are their own patches, and a 1 x
// 1 convolution is a product of them.
bool AreImagesPatches(const ImageMap& map) {
  return map.window == Window() && map.from.positions() == map.to.positions();
}

// The bytes of so many f32, up to where the device would align what it allocates: anything may lie behind them.
int64_t AlignedBytes(int64_t n) {
  return cuda::CeilDiv(n * static_cast<int64_t>(sizeof(float)), 256) * 256;
}

int64_t WeightsBytes(const ImageMap& map) { return AlignedBytes(map.weight_size()); }

// The sizes of those of ConvolutionPass's a and b that are images, and 0 for weights.
struct ImageSizes {
  int64_t a, b;
};
ImageSizes SizesOf(Kind kind, const ImageMap& map) {
  return {(kind == Kind::kInputGradient ? map.to : map.from).size(),
          kind == Kind::kWeightGradient ? map.to.size() : 0};
}

// The bytes of the pass's images as f32, where those of T have to be widened: cuDNN has no convolution of bf16 whose
// result is f32.
template <typename T>
int64_t WidenedBytes(Kind kind, const ImagesShape& shape) {
  if (std::is_same_v<T, float>) return 0;
  const ImageSizes sizes = SizesOf(kind, shape.map);
  return AlignedBytes(shape.rows * sizes.a) + AlignedBytes(shape.rows * sizes.b);
}

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % cuda::ConvolutionPass::kAlignment == 0;
}

// Weights with the channels of x last, or back: of each channel of y, `rows` x `columns` are turned.
template <bool kAdds, typename T>
void Turn(const ImageMap& map, int64_t rows, int64_t columns, const T* from, float* to,
          cuda::Device* device) {
  const cuda::TurnWeights<T, kAdds> turn{{},
                                         static_cast<uint32_t>(map.to.channels * rows * columns),
                                         static_cast<uint32_t>(rows),
                                         static_cast<uint32_t>(columns),
                                         from,
                                         to};
  device->Launch(turn.blocks(), turn);
}

// `n` values as f32: those of bf16 at *room, which moves behind them.
const float* AsF32(int64_t, const float* values, char**, cuda::Device*) { return values; }
const float* AsF32(int64_t n, const Bf16* values, char** room, cuda::Device* device) {
  float* const wide = reinterpret_cast<float*>(*room);
  *room += AlignedBytes(n);
  const cuda::Elementwise<cuda::WidenOp> widen({{}, {values}, {wide}}, n);
  device->Launch(widen.blocks(), widen);
  return wide;
}

}  // namespace

template <typename T>
template <typename V>
typename CudaConvolution<T>::Part CudaConvolution<T>::PartOf(const ImagesShape& shape) const {
  const ImageMap& map = shape.map;
  const int64_t bytes = map.to.positions() * ColumnsOf(map) * static_cast<int64_t>(sizeof(V));
  // As many images as the room for patches holds, and as a launch numbers in 32 bits.
  const int64_t images =
      std::min(ImagesWithin(shape.rows, bytes, options_.patch_bytes),
               ImagesWithin(shape.rows, ItemsOf(map), cuda::ImageWindows::kItemsMax));
  return {images, images * bytes};
}

template <typename T>
int64_t CudaConvolution<T>::ImagesOf(Kind kind, const ImagesShape& shape) const {
  // Only bf16 needs widened copies for cuDNN, and therefore pieces.
  if (std::is_same_v<T, float> || !MayConvolve(shape.map)) return shape.rows;
  const ImageSizes sizes = SizesOf(kind, shape.map);
  const int64_t bytes = (sizes.a + sizes.b) * static_cast<int64_t>(sizeof(float));
  // At least one image, whatever it takes.
  int64_t images = std::max<int64_t>(1, options_.widened_bytes / bytes);
  // The results behind so many are aligned, too.
  constexpr int64_t kAligned = cuda::ConvolutionPass::kAlignment / sizeof(float);
  if (images > kAligned) images -= images % kAligned;
  return std::min(shape.rows, images);
}

template <typename T>
template <typename F>
void CudaConvolution<T>::ForPasses(Kind kind, const ImagesShape& shape, const F& f) const {
  const int64_t images = ImagesOf(kind, shape);
  for (int64_t first = 0; first < shape.rows; first += images) {
    f(first, ImagesShape{std::min(images, shape.rows - first), shape.map});
  }
}

template <typename T>
int64_t CudaConvolution<T>::ScratchBytes(const ImagesShape& shape) const {
  const ImageMap& map = shape.map;
  if (AreImagesPatches(map)) return 0;
  int64_t bytes = std::max(PartOf<T>(shape).bytes, PartOf<float>(shape).bytes);
  if (!MayConvolve(map)) return bytes;
  // One scratch serves all three passes, as they run one after the other.
  for (const Kind kind : {Kind::kForward, Kind::kWeightGradient, Kind::kInputGradient}) {
    // Workspace for the largest that cuDNN is allowed, as its size is known only when a plan is made.
    bytes =
        std::max(bytes, WeightsBytes(map) + WidenedBytes<T>(kind, {ImagesOf(kind, shape), map}) +
                            cuda::ConvolutionPass::kWorkspaceBytesMax);
  }
  return bytes;
}

template <typename T>
bool CudaConvolution<T>::MayConvolve(const ImageMap& map) const {
  return options_.cudnn && !AreImagesPatches(map) &&
         (options_.cudnn_if_slower || !PrefersProducts(factors_, map)) &&
         ItemsOf(map) <= cuda::ImageWindows::kItemsMax / map.to.channels &&
         device_.HasConvolutions();
}

template <typename T>
bool CudaConvolution<T>::Convolve(Kind kind, const ImagesShape& shape, const T* a, const T* b,
                                  float beta, float* c) {
  const ImageMap& map = shape.map;
  // A gradient of weights is turned in the scratch, which is aligned.
  const bool to_weights = kind == Kind::kWeightGradient;
  if (!MayConvolve(map) || !(to_weights || IsAligned(c))) return false;
  // Widened values lie in the scratch, which is aligned; values of f32 are read where the caller has them.
  if (std::is_same_v<T, float> && !(IsAligned(a) && (!to_weights || IsAligned(b)))) return false;
  cuda::ConvolutionPass pass;
  pass.kind = kind;
  pass.tf32 = factors_ != Factors::kF32;
  pass.shape = shape;
  const absl::optional<int64_t> workspace = device_.ConvolutionWorkspace(pass);
  if (!workspace.has_value()) return false;
  TESSERA_CHECK(*workspace <= cuda::ConvolutionPass::kWorkspaceBytesMax);
  char* const scratch = static_cast<char*>(
      scratch_.Of(WeightsBytes(map) + WidenedBytes<T>(kind, shape) + *workspace));
  if (scratch == nullptr) return true;  // The failure is scratch's.
  float* const turned = reinterpret_cast<float*>(scratch);
  char* room = scratch + WeightsBytes(map);
  const int64_t channels = map.group_channels(), places = map.window.size();
  const ImageSizes sizes = SizesOf(kind, map);
  pass.a = AsF32(shape.rows * sizes.a, a, &room, &device_);
  if (to_weights) {
    pass.b = AsF32(shape.rows * sizes.b, b, &room, &device_);
    pass.c = turned;
  } else {
    Turn<false>(map, channels, places, b, turned, &device_);
    pass.b = turned;
    pass.beta = beta;
    pass.c = c;
  }
  // A refusal costs nothing: the caller multiplies patches instead.
  if (!device_.Convolve(pass, room)) return false;
  ++shortcuts_.convolutions;
  if (!to_weights) return true;
  // cuDNN's sum cannot be added to a gradient in another layout: it is turned and added.
  if (beta == 0) {
    Turn<false>(map, places, channels, turned, c, &device_);
  } else {
    Turn<true>(map, places, channels, turned, c, &device_);
  }
  return true;
}

template <typename T>
template <typename V, typename F>
// Patches of all images at once would take gigabytes, so they are laid for a part of the images at a time.
void CudaConvolution<T>::ForParts(const ImagesShape& shape, const F& f) {
  TESSERA_CHECK(ItemsOf(shape.map) <= cuda::ImageWindows::kItemsMax);
  const Part part = PartOf<V>(shape);
  V* const patches = static_cast<V*>(scratch_.Of(part.bytes));
  if (patches == nullptr) return;
  // All parts share one memory for their patches, as they run one after the other on the stream.
  for (int64_t first = 0; first < shape.rows; first += part.images) {
    f(first, std::min(part.images, shape.rows - first), patches);
  }
}

template <typename T>
template <typename F>
void CudaConvolution<T>::ForPatches(const ImagesShape& shape, const T* x, const F& f) {
  const ImageMap& map = shape.map;
  if (AreImagesPatches(map)) return f(0, shape.rows, x);
  ForParts<T>(shape, [&](int64_t first, int64_t images, T* patches) {
    const cuda::LayPatches<T> lay{{},
                                  WindowsOf(map),
                                  static_cast<uint32_t>(images * map.to.positions()),
                                  static_cast<uint32_t>(ColumnsOf(map)),
                                  x + first * map.from.size(),
                                  patches};
    device_.Launch(lay.blocks(), lay);
    f(first, images, patches);
  });
}

template <typename T>
template <typename F>
void CudaConvolution<T>::MultiplyGroups(const ImageMap& map, const F& of_group) {
  // One product for each group, as its factors lie with strides between them.
  for (int64_t group = 0; group < map.groups; ++group) device_.Multiply(of_group(group));
}

template <typename T>
void CudaConvolution<T>::Forward(const ImagesShape& shape, const T* x, const T* weight,
                                 const float* bias, float* y) {
  if (shape.rows == 0) return;
  const Image& to = shape.map.to;
  // The bias is written first, and products are added on top of it.
  if (bias != nullptr) {
    cuda::BiasOp op;
    op.bias = bias;
    op.out = y;
    MapColumns({shape.rows * to.positions(), to.channels}, op, &device_);
  }
  const float beta = bias == nullptr ? 0.0f : 1.0f;
  const int64_t channels = to.channels / shape.map.groups, columns = shape.map.weight_columns();
  ForPasses(Kind::kForward, shape, [&](int64_t begin, const ImagesShape& part) {
    const T* const part_x = x + begin * shape.map.from.size();
    float* const part_y = y + begin * to.size();
    if (Convolve(Kind::kForward, part, part_x, weight, beta, part_y)) return;
    ForPatches(part, part_x, [&](int64_t first, int64_t images, const T* patches) {
      float* const first_y = part_y + first * to.size();
      MultiplyGroups(shape.map, [&](int64_t group) {
        return cuda::Product{factors_,
                             images * to.positions(),
                             channels,
                             columns,
                             patches + group * columns,
                             false,
                             weight + group * channels * columns,
                             true,
                             beta,
                             first_y + group * channels,
                             ColumnsOf(shape.map),
                             0,
                             to.channels};
      });
    });
  });
}

template <typename T>
void CudaConvolution<T>::WeightGradient(const ImagesShape& shape, const T* x, const T* dy,
                                        WriteMode mode, float* dweight) {
  const Image& to = shape.map.to;
  const int64_t channels = to.channels / shape.map.groups, columns = shape.map.weight_columns();
  const bool adds = mode == WriteMode::kAdd;
  // No rows: the gradient is 0.
  if (shape.rows == 0) {
    if (adds) return;
    return device_.Zero(cuda::Stream::kCompute, dweight,
                        shape.map.weight_size() * static_cast<int64_t>(sizeof(float)));
  }
  ForPasses(Kind::kWeightGradient, shape, [&](int64_t begin, const ImagesShape& part) {
    const T* const part_x = x + begin * shape.map.from.size();
    const T* const part_dy = dy + begin * to.size();
    // The first part overwrites unless the caller adds; every later one adds to it.
    const auto beta = [&](int64_t first) { return adds || begin + first > 0 ? 1.0f : 0.0f; };
    if (Convolve(Kind::kWeightGradient, part, part_x, part_dy, beta(0), dweight)) return;
    ForPatches(part, part_x, [&](int64_t first, int64_t images, const T* patches) {
      const T* const first_dy = part_dy + first * to.size();
      MultiplyGroups(shape.map, [&](int64_t group) {
        return cuda::Product{factors_,
                             channels,
                             columns,
                             images * to.positions(),
                             first_dy + group * channels,
                             true,
                             patches + group * columns,
                             false,
                             beta(first),
                             dweight + group * channels * columns,
                             to.channels,
                             ColumnsOf(shape.map)};
      });
    });
  });
}

template <typename T>
void CudaConvolution<T>::InputGradient(const ImagesShape& shape, const T* dy, const T* weight,
                                       float* dx) {
  if (shape.rows == 0) return;
  const ImageMap& map = shape.map;
  const int64_t channels = map.to.channels / map.groups, columns = map.weight_columns();
  // dpatches = dy W. A place of the image then sums what the patches have of it.
  const auto multiply = [&](const T* first_dy, int64_t images, float* dpatches) {
    MultiplyGroups(map, [&](int64_t group) {
      return cuda::Product{factors_,
                           images * map.to.positions(),
                           columns,
                           channels,
                           first_dy + group * channels,
                           false,
                           weight + group * channels * columns,
                           false,
                           0.0f,
                           dpatches + group * columns,
                           map.to.channels,
                           0,
                           ColumnsOf(map)};
    });
  };
  if (AreImagesPatches(map)) return multiply(dy, shape.rows, dx);
  ForPasses(Kind::kInputGradient, shape, [&](int64_t begin, const ImagesShape& part) {
    const T* const part_dy = dy + begin * map.to.size();
    float* const part_dx = dx + begin * map.from.size();
    if (Convolve(Kind::kInputGradient, part, part_dy, weight, 0.0f, part_dx)) return;
    ForParts<float>(part, [&](int64_t first, int64_t images, float* dpatches) {
      multiply(part_dy + first * map.to.size(), images, dpatches);
      const cuda::SumPatches sum{{},
                                 WindowsOf(map),
                                 static_cast<uint32_t>(images * map.from.size()),
                                 static_cast<uint32_t>(ColumnsOf(map)),
                                 dpatches,
                                 part_dx + first * map.from.size()};
      device_.Launch(sum.blocks(), sum);
    });
  });
}

template class CudaConvolution<float>;
template class CudaConvolution<Bf16>;

}  // namespace tessera

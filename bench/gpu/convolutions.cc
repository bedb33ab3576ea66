#include "bench/gpu/convolutions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/gpu/kernels.h"
#include "bench/gpu/verdict.h"
#include "common/base/check.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

constexpr Window kWindow{3, 3, 1, 1, 1, 1};

// From what on images have their whole size: with --tiny a machine that only plays a GPU may have
// to do it.
constexpr int64_t kWholeFrom = 32;

// A middle layer of a network for small images, a first one, one that halves them, a late one, and
// the first of one for digits.
struct Layer {
  Image from;
  Window window;
  int64_t channels;
};
constexpr Layer kLayers[] = {{{64, 32, 32}, kWindow, 64},
                             {{3, 32, 32}, kWindow, 64},
                             {{64, 16, 16}, {3, 3, 2, 2, 1, 1}, 128},
                             {{256, 8, 8}, kWindow, 256},
                             {{1, 28, 28}, {5, 5, 1, 1, 2, 2}, 32}};

enum class Pass { kForward, kWeightGradient, kInputGradient };
constexpr Pass kPasses[] = {Pass::kForward, Pass::kWeightGradient, Pass::kInputGradient};
constexpr const char* kPassNames[] = {"forward", "weight gradient", "input gradient"};

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kBf16};
constexpr const char* kPrecisionNames[] = {"f32", "tf32", "bf16"};

// Factors, each in both types, and results.
struct Arrays {
  Buffer<float> x, w, dy;
  Buffer<Bf16> x_bf16, w_bf16, dy_bf16;
  Buffer<float> out[3];  // by pass
};

// Numbers that bf16 holds, so that every precision multiplies the same.
absl::StatusOr<Arrays> Fill(Backend& backend, const ImagesShape& shape) {
  Memory& memory = backend.memory();
  std::mt19937 random(3);
  Arrays arrays;
  const auto fill = [&](int64_t n, Buffer<float>* values, Buffer<Bf16>* rounded) -> absl::Status {
    std::vector<float> drawn(n);
    for (float& value : drawn) {
      value = Widen(RoundToBf16(static_cast<float>(random() >> 8) * 0x1p-23f - 1));
    }
    TESSERA_ASSIGN_OR_RETURN(*values, Buffer<float>::Create(memory, n));
    TESSERA_ASSIGN_OR_RETURN(*rounded, Buffer<Bf16>::Create(memory, n));
    memory.CopyIn(drawn.data(), values->bytes(), values->data());
    backend.vector().Round(n, values->data(), rounded->data());
    return absl::OkStatus();
  };
  const ImageMap& map = shape.map;
  const int64_t x = shape.rows * map.from.size(), y = shape.rows * map.to.size();
  const int64_t w = map.to.channels * map.from.channels * map.window.size();
  TESSERA_RETURN_IF_ERROR(fill(x, &arrays.x, &arrays.x_bf16));
  TESSERA_RETURN_IF_ERROR(fill(w, &arrays.w, &arrays.w_bf16));
  TESSERA_RETURN_IF_ERROR(fill(y, &arrays.dy, &arrays.dy_bf16));
  TESSERA_ASSIGN_OR_RETURN(arrays.out[0], Buffer<float>::Create(memory, y));
  TESSERA_ASSIGN_OR_RETURN(arrays.out[1], Buffer<float>::Create(memory, w));
  TESSERA_ASSIGN_OR_RETURN(arrays.out[2], Buffer<float>::Create(memory, x));
  return arrays;
}

template <typename T>
void Run(ConvolutionKernel<T>& convolution, const ImagesShape& shape, Pass pass, const Buffer<T>& x,
         const Buffer<T>& w, const Buffer<T>& dy, float* out) {
  switch (pass) {
    case Pass::kForward:
      return convolution.Forward(shape, x.data(), w.data(), nullptr, out);
    case Pass::kWeightGradient:
      return convolution.WeightGradient(shape, x.data(), dy.data(), WriteMode::kOverwrite, out);
    case Pass::kInputGradient:
      return convolution.InputGradient(shape, dy.data(), w.data(), out);
  }
}

absl::Status Run(Backend& backend, Precision precision, const ImagesShape& shape, Pass pass,
                 const Arrays& a) {
  float* const out = a.out[static_cast<int>(pass)].data();
  if (precision == Precision::kBf16) {
    TESSERA_ASSIGN_OR_RETURN(ConvolutionKernel<Bf16>* const bf16, backend.convolution_bf16());
    Run(*bf16, shape, pass, a.x_bf16, a.w_bf16, a.dy_bf16, out);
    return absl::OkStatus();
  }
  ConvolutionKernel<float>* f32 = &backend.convolution();
  if (precision == Precision::kTf32) {
    TESSERA_ASSIGN_OR_RETURN(f32, backend.convolution_tf32());
  }
  Run(*f32, shape, pass, a.x, a.w, a.dy, out);
  return absl::OkStatus();
}

double Flops(const ImagesShape& shape) {
  const ImageMap& map = shape.map;
  return 2.0 *
         static_cast<double>(shape.rows * map.to.size() * map.from.channels * map.window.size());
}

// The most terms that any sum of the pass has.
int64_t TermsOf(const ImagesShape& shape, Pass pass) {
  const ImageMap& map = shape.map;
  if (pass == Pass::kWeightGradient) return shape.rows * map.to.positions();
  return (pass == Pass::kForward ? map.from : map.to).channels * map.window.size();
}

// In what results are not the CPU's; empty: in nothing. The battery holds them to finer bounds.
absl::StatusOr<std::string> WrongIn(Backend& device, Precision precision,
                                    const ImagesShape& shape) {
  std::unique_ptr<Backend> cpu;
  TESSERA_ASSIGN_OR_RETURN(cpu, CreateBackend("cpu", 1));
  TESSERA_ASSIGN_OR_RETURN(const Arrays want, Fill(*cpu, shape));
  TESSERA_ASSIGN_OR_RETURN(const Arrays got, Fill(device, shape));
  for (const Pass pass : kPasses) {
    TESSERA_RETURN_IF_ERROR(Run(*cpu, Precision::kF32, shape, pass, want));
    TESSERA_RETURN_IF_ERROR(Run(device, precision, shape, pass, got));
    TESSERA_RETURN_IF_ERROR(cpu->Finish());
    TESSERA_RETURN_IF_ERROR(device.Finish());
    const int p = static_cast<int>(pass);
    std::vector<float> a(want.out[p].size()), b(a.size());
    cpu->memory().CopyOut(want.out[p].data(), want.out[p].bytes(), a.data());
    device.memory().CopyOut(got.out[p].data(), got.out[p].bytes(), b.data());
    // What is wrong is off by about the root of the number of terms.
    const float bound = std::max(1e-4f, 1e-6f * static_cast<float>(TermsOf(shape, pass)));
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::fabs(a[i] - b[i]) <= bound * (1 + std::fabs(a[i]))) continue;
      return absl::StrCat(kPassNames[p], ": value ", i, " is ", b[i], ", want ", a[i],
                          " as on the CPU");
    }
  }
  return std::string();
}

// Times one precision's three passes against the device's own rate.
absl::Status Time(const std::string& name, Precision precision, int64_t images, double limit,
                  double seconds, bool tells_by, Backend& device) {
  const int64_t edge = images < kWholeFrom ? 8 : 32;
  const ImagesShape shape{images, MapOf({64, edge, edge}, kWindow, 64)};
  TESSERA_ASSIGN_OR_RETURN(const Arrays arrays, Fill(device, shape));
  const double flops = Flops(shape);
  for (const Pass pass : kPasses) {
    absl::Status status;
    const int64_t before = device.shortcuts().convolutions;
    TESSERA_ASSIGN_OR_RETURN(const double each, SecondsPerCall(device, seconds, [&] {
                               status.Update(Run(device, precision, shape, pass, arrays));
                             }));
    TESSERA_RETURN_IF_ERROR(status);
    const bool by_library = device.shortcuts().convolutions > before;
    const char* const by = !tells_by ? "" : by_library ? "  by cuDNN" : "  by products";
    std::printf("%-34s %12.1f %8.2f%s\n",
                absl::StrCat(name, " conv 3x3x64, ", kPassNames[static_cast<int>(pass)]).c_str(),
                flops / each * 1e-12, flops / each / limit, by);
  }
  return absl::OkStatus();
}

// The layer's shape; of few images, as a test has them, it is made smaller.
ImagesShape ShapeOf(const Layer& layer, int64_t images) {
  Image from = layer.from;
  int64_t channels = layer.channels;
  if (images < kWholeFrom) {
    from = {std::max<int64_t>(1, from.channels / 8), from.height / 4, from.width / 4};
    channels /= 8;
  }
  return {images, MapOf(from, layer.window, channels)};
}

std::string NameOf(const ImageMap& map) {
  const Window& w = map.window;
  return absl::StrCat(map.from.channels, "x", map.from.height, "x", map.from.width, " to ",
                      map.to.channels, ", ", w.height, "x", w.width,
                      w.stride_y > 1 ? absl::StrCat(" by ", w.stride_y) : "");
}

bool Has(Backend& backend, Precision precision) {
  return precision == Precision::kTf32   ? backend.convolution_tf32().ok()
         : precision == Precision::kBf16 ? backend.convolution_bf16().ok()
                                         : true;
}

// TFLOP/s by precision and pass, 0 where it was not done: where a library is asked for, by anything
// else.
using Rates = std::array<std::array<double, 3>, 3>;
// The rates of all passes and precisions, by the library or by products.
absl::StatusOr<Rates> RatesOf(Backend& backend, const ImagesShape& shape, bool by_library,
                              double seconds) {
  Rates rates{};
  TESSERA_ASSIGN_OR_RETURN(const Arrays arrays, Fill(backend, shape));
  for (int p = 0; p < 3; ++p) {
    if (!Has(backend, kPrecisions[p])) continue;
    for (const Pass pass : kPasses) {
      const int64_t before = backend.shortcuts().convolutions;
      TESSERA_RETURN_IF_ERROR(Run(backend, kPrecisions[p], shape, pass, arrays));
      if (by_library && backend.shortcuts().convolutions == before) continue;
      absl::Status status;
      TESSERA_ASSIGN_OR_RETURN(const double each, SecondsPerCall(backend, seconds, [&] {
                                 status.Update(Run(backend, kPrecisions[p], shape, pass, arrays));
                               }));
      TESSERA_RETURN_IF_ERROR(status);
      rates[p][static_cast<int>(pass)] = Flops(shape) / each * 1e-12;
    }
  }
  return rates;
}

void PrintRates(const std::array<double, 3>& rates) {
  for (const double rate : rates) {
    std::printf(" %7s", rate > 0 ? absl::StrFormat("%.1f", rate).c_str() : "-");
  }
}

}  // namespace

absl::Status CompareConvolutions(int64_t images, double seconds, Backend& by_cudnn,
                                 Backend& by_products, int* wrong) {
  // There are ninety measurements, so each is short.
  constexpr double kSecondsMax = 0.05;
  seconds = std::min(seconds, kSecondsMax);
  std::printf("\n%-34s %7s %7s %7s | %7s %7s %7s\n", "TFLOP/s by cuDNN | by products", "forward",
              "weights", "inputs", "forward", "weights", "inputs");
  for (const Layer& layer : kLayers) {
    const ImagesShape shape = ShapeOf(layer, images);
    const std::string name = NameOf(shape.map);
    for (int p = 0; p < 3; ++p) {
      if (!Has(by_cudnn, kPrecisions[p])) continue;
      for (Backend* const each : {&by_cudnn, &by_products}) {
        TESSERA_ASSIGN_OR_RETURN(const std::string what,
                                 WrongIn(*each, kPrecisions[p], {3, shape.map}));
        if (what.empty()) continue;
        TellWrong(absl::StrCat(kPrecisionNames[p], " conv ", name,
                               each == &by_cudnn ? ", " : ", without cuDNN, ", what),
                  wrong);
      }
    }
    TESSERA_ASSIGN_OR_RETURN(const Rates cudnn, RatesOf(by_cudnn, shape, true, seconds));
    TESSERA_ASSIGN_OR_RETURN(const Rates products, RatesOf(by_products, shape, false, seconds));
    for (int p = 0; p < 3; ++p) {
      if (!Has(by_cudnn, kPrecisions[p])) continue;
      std::printf("%-34s", absl::StrCat(kPrecisionNames[p], " ", name).c_str());
      PrintRates(cudnn[p]);
      std::printf(" |");
      PrintRates(products[p]);
      std::printf("\n");
    }
  }
  return absl::OkStatus();
}

absl::Status TimeConvolutions(const std::string& name, Precision precision, int64_t images,
                              double limit, double seconds, Backend& device, Backend& by_products,
                              int* wrong) {
  // One number of channels that cuDNN is asked for, and one that products are taken for.
  for (const int64_t channels : {32, 5}) {
    const ImagesShape shape{3, MapOf({channels, 7, 6}, kWindow, channels)};
    for (Backend* const each : {&device, &by_products}) {
      TESSERA_ASSIGN_OR_RETURN(const std::string what, WrongIn(*each, precision, shape));
      if (what.empty()) continue;
      TellWrong(absl::StrCat(name, " conv of ", channels, " channels",
                             each == &device ? ", " : ", without cuDNN, ", what),
                wrong);
    }
  }
  const bool has_library = device.shortcuts().convolutions > 0;
  TESSERA_RETURN_IF_ERROR(Time(name, precision, images, limit, seconds, has_library, device));
  if (!has_library) return absl::OkStatus();
  return Time(name, precision, images, limit, seconds, has_library, by_products);
}

}  // namespace tessera

#include "kernels/cpu/convolution.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dnnl.hpp"
#include "kernels/cpu/dnnl_room.h"

namespace tessera {
namespace {

using dnnl::memory;

// The most shapes that stay prepared: a network has three per convolution and size of batch.
constexpr size_t kPreparedMax = 1024;
// Images are gathered in pieces of so much, or one where it is larger, which is in no sum of memory.
constexpr int64_t kGatheredBytesMax = int64_t{4} << 20;

template <typename T>
constexpr memory::data_type kType =
    std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

// The descriptor of images for oneDNN, [rows, channels, height, width], with its tag for how they lie.
memory::desc Images(int64_t rows, const Image& image, memory::data_type type) {
  return memory::desc({rows, image.channels, image.height, image.width}, type,
                      memory::format_tag::nhwc);
}

// With the groups as an extent of their own where there are several. `as_given`: as the caller has them, else in an
// order of oneDNN's own choice.
memory::desc Weights(const ImageMap& map, memory::data_type type, bool as_given) {
  const Window& window = map.window;
  memory::dims dims = {map.to.channels / map.groups, map.group_channels(), window.height,
                       window.width};
  const bool is_grouped = map.groups > 1;
  if (is_grouped) dims.insert(dims.begin(), map.groups);
  auto tag = is_grouped ? memory::format_tag::goihw : memory::format_tag::oihw;
  if (!as_given) tag = memory::format_tag::any;
  return memory::desc(dims, type, tag);
}

// An error of oneDNN's with the shape that it was about: its own words name none.
absl::Status StatusOf(const ImagesShape& shape, const dnnl::error& error) {
  const Image& from = shape.map.from;
  const Image& to = shape.map.to;
  const std::string what = absl::StrCat(
      "oneDNN: convolution of ", shape.rows, " images, ", from.channels, " x ", from.height, " x ",
      from.width, " -> ", to.channels, " x ", to.height, " x ", to.width, ": ", error.what());
  return error.status == dnnl_out_of_memory ? absl::ResourceExhaustedError(what)
                                            : absl::InternalError(what);
}

}  // namespace

template <typename T>
struct CpuConvolution<T>::Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive_attr attributes;
  dnnl::primitive_attr adding;  // of a reorder: on top of what is there
  // Convolutions run one after the other, so that the largest one's scratch is all that there is.
  DnnlRoom scratch;
  DnnlRoom packed;
  DnnlRoom gathered;
};

// A primitive with its arguments; a run only sets the addresses.
template <typename T>
struct CpuConvolution<T>::Prepared {
  dnnl::primitive convolution;
  std::unordered_map<int, memory> arguments;
  int weights_argument = DNNL_ARG_WEIGHTS;
  // If `reorders`, the primitive reads or writes weights in an order of its own, between which and the caller's
  // they are turned.
  bool reorders = false;
  dnnl::reorder reorder;
  memory callers;
};

template <typename T>
CpuConvolution<T>::CpuConvolution(const CpuThreads& threads)
    : threads_(threads), engine_(std::make_unique<Engine>()) {
  engine_->attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops sum;
  sum.append_sum(1.0f);
  engine_->adding.set_post_ops(sum);
}

template <typename T>
CpuConvolution<T>::~CpuConvolution() = default;

template <typename T>
typename CpuConvolution<T>::Prepared CpuConvolution<T>::Prepare(Kind kind,
                                                                const ImagesShape& shape) const {
  const memory::data_type f32 = memory::data_type::f32;
  const memory::data_type type = kType<T>;
  const dnnl::engine& engine = engine_->engine;
  const ImageMap& map = shape.map;
  const Window& window = map.window;
  const memory::dims strides = {window.stride_y, window.stride_x};
  const memory::dims padding = {window.padding_y, window.padding_x};
  const auto algorithm = dnnl::algorithm::convolution_direct;
  // oneDNN counts what lies between two places that a window looks at.
  const memory::dims dilates = {window.dilation_y - 1, window.dilation_x - 1};

  Prepared made;
  memory::desc weights;
  const auto bind = [&](int argument, const memory::desc& desc) {
    made.arguments[argument] = memory(desc, engine, DNNL_MEMORY_NONE);
  };
  const auto x_in = Images(shape.rows, map.from, type);
  const auto y_out = Images(shape.rows, map.to, f32);
  if (kind == Kind::kForward || kind == Kind::kForwardWithBias) {
    const memory::desc bias = kind == Kind::kForward
                                  ? memory::desc()
                                  : memory::desc({map.to.channels}, f32, memory::format_tag::a);
    const dnnl::convolution_forward::primitive_desc description(
        {dnnl::prop_kind::forward_training, algorithm, x_in, Weights(map, type, false), bias, y_out,
         strides, dilates, padding, padding},
        engine_->attributes, engine);
    bind(DNNL_ARG_SRC, x_in);
    if (kind == Kind::kForwardWithBias) bind(DNNL_ARG_BIAS, bias);
    bind(DNNL_ARG_DST, y_out);
    bind(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    weights = description.weights_desc();
    made.convolution = dnnl::convolution_forward(description);
  } else {
    // oneDNN's backward primitives want the forward one as a hint.
    const dnnl::convolution_forward::primitive_desc hint(
        {dnnl::prop_kind::forward_training, algorithm, x_in, Weights(map, type, false), y_out,
         strides, dilates, padding, padding},
        engine_->attributes, engine);
    const auto dy = Images(shape.rows, map.to, type);
    bind(DNNL_ARG_DIFF_DST, dy);
    if (kind == Kind::kInputGradient) {
      const auto dx = Images(shape.rows, map.from, f32);
      const dnnl::convolution_backward_data::primitive_desc description(
          {algorithm, dx, Weights(map, type, false), dy, strides, dilates, padding, padding},
          engine_->attributes, engine, hint);
      bind(DNNL_ARG_DIFF_SRC, dx);
      bind(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
      weights = description.weights_desc();
      made.convolution = dnnl::convolution_backward_data(description);
    } else {
      const dnnl::convolution_backward_weights::primitive_desc description(
          {algorithm, x_in, Weights(map, f32, false), dy, strides, dilates, padding, padding},
          engine_->attributes, engine, hint);
      bind(DNNL_ARG_SRC, x_in);
      bind(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
      weights = description.diff_weights_desc();
      made.weights_argument = DNNL_ARG_DIFF_WEIGHTS;
      made.convolution = dnnl::convolution_backward_weights(description);
    }
  }
  const bool is_gradient = made.weights_argument == DNNL_ARG_DIFF_WEIGHTS;
  const bool adds = kind == Kind::kWeightGradientAdded;
  const memory::desc callers = Weights(map, is_gradient ? f32 : type, true);
  made.callers = memory(callers, engine, DNNL_MEMORY_NONE);
  bind(made.weights_argument, weights);
  // oneDNN's gradient of weights only overwrites; the reorder does the addition, even between equal orders.
  made.reorders = adds || weights != callers;
  if (made.reorders && is_gradient) {
    made.reorder = dnnl::reorder(dnnl::reorder::primitive_desc(
        engine, weights, engine, callers, adds ? engine_->adding : dnnl::primitive_attr()));
  } else if (made.reorders) {
    made.reorder = dnnl::reorder(dnnl::reorder::primitive_desc(engine, callers, engine, weights));
  }
  return made;
}

template <typename T>
typename CpuConvolution<T>::Prepared& CpuConvolution<T>::PreparedFor(Kind kind,
                                                                     const ImagesShape& shape) {
  const ImageMap& m = shape.map;
  const Window& w = m.window;
  const Key key = {static_cast<int64_t>(kind),
                   shape.rows,
                   m.from.channels,
                   m.from.height,
                   m.from.width,
                   m.to.channels,
                   w.height,
                   w.width,
                   w.stride_y,
                   w.stride_x,
                   w.padding_y,
                   w.padding_x,
                   w.dilation_y,
                   w.dilation_x,
                   m.groups};
  if (const auto found = prepared_.find(key); found != prepared_.end()) return found->second;
  // All are dropped at once. Only a network of very many shapes comes here, and each is prepared again when it is used.
  if (prepared_.size() >= kPreparedMax) prepared_.clear();
  return prepared_.emplace(key, Prepare(kind, shape)).first->second;
}

template <typename T>
void CpuConvolution<T>::Run(Kind kind, const ImagesShape& shape, const Values& values,
                            const void* weights) {
  threads_.Enter();
  // oneDNN reports by exceptions. None leaves this function: the first failure is kept until TakeStatus.
  try {
    Prepared& prepared = PreparedFor(kind, shape);
    for (const auto& [argument, address] : values) {
      prepared.arguments[argument].set_data_handle(const_cast<void*>(address));
    }
    memory& scratch = prepared.arguments[DNNL_ARG_SCRATCHPAD];
    scratch.set_data_handle(engine_->scratch.Of(scratch.get_desc(), engine_->engine));
    prepared.callers.set_data_handle(const_cast<void*>(weights));
    memory& own = prepared.arguments[prepared.weights_argument];
    const bool is_gradient = prepared.weights_argument == DNNL_ARG_DIFF_WEIGHTS;
    if (!prepared.reorders) {
      own.set_data_handle(const_cast<void*>(weights));
    } else {
      own.set_data_handle(engine_->packed.Of(own.get_desc(), engine_->engine));
      if (!is_gradient) prepared.reorder.execute(engine_->stream, prepared.callers, own);
    }
    prepared.convolution.execute(engine_->stream, prepared.arguments);
    if (prepared.reorders && is_gradient) {
      prepared.reorder.execute(engine_->stream, own, prepared.callers);
    }
    engine_->stream.wait();
  } catch (const dnnl::error& error) {
    status_.Update(StatusOf(shape, error));
  }
}

template <typename T>
const T* CpuConvolution<T>::Gather(const ImagesShape& shape, const T* x) {
  const Image &from = shape.map.from, &to = shape.map.to;
  const Window& window = shape.map.window;
  T* gathered = nullptr;
  try {
    gathered = static_cast<T*>(engine_->gathered.Of(
        Images(shape.rows, {from.channels, to.height, to.width}, kType<T>), engine_->engine));
  } catch (const dnnl::error& error) {
    status_.Update(StatusOf(shape, error));
    return nullptr;
  }
  const int64_t size = to.height * to.width * from.channels;
  threads_.SplitWhole(shape.rows, size, [&](int64_t begin, int64_t end) {
    T* out = gathered + begin * size;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t y = 0; y < to.height; ++y) {
        const T* const line =
            x + (n * from.height + y * window.stride_y) * from.width * from.channels;
        for (int64_t c = 0; c < to.width; ++c) {
          out = std::copy_n(line + c * window.stride_x * from.channels, from.channels, out);
        }
      }
    }
  });
  return gathered;
}

template <typename T>
void CpuConvolution<T>::Forward(const ImagesShape& shape, const T* x, const T* weight,
                                const float* bias, float* y) {
  if (shape.rows == 0) return;
  if (bias == nullptr) {
    return Run(Kind::kForward, shape, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}}, weight);
  }
  Run(Kind::kForwardWithBias, shape, {{DNNL_ARG_SRC, x}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, y}},
      weight);
}

template <typename T>
void CpuConvolution<T>::WeightGradient(const ImagesShape& shape, const T* x, const T* dy,
                                       WriteMode mode, float* dweight) {
  const bool adds = mode == WriteMode::kAdd;
  if (shape.rows == 0) {
    if (!adds) std::fill_n(dweight, shape.map.weight_size(), 0.0f);
    return;
  }
  const Kind kind = adds ? Kind::kWeightGradientAdded : Kind::kWeightGradient;
  const Window& window = shape.map.window;
  const bool is_padded = window.padding_y + window.padding_x > 0;
  // oneDNN 2.6 writes beyond its memory in this gradient with AVX2 (see Gather), so what the strided windows of one
  // pixel see is gathered first, in pieces whose gradients are added up.
  if (window.size() == 1 && window.stride_y * window.stride_x > 1 && !is_padded) {
    const Image &from = shape.map.from, &to = shape.map.to;
    const ImageMap dense =
        MapOf({from.channels, to.height, to.width}, Window(), to.channels, shape.map.groups);
    const int64_t bytes = dense.from.size() * static_cast<int64_t>(sizeof(T));
    const int64_t piece = std::max<int64_t>(1, kGatheredBytesMax / bytes);
    for (int64_t begin = 0; begin < shape.rows; begin += piece) {
      const int64_t rows = std::min(piece, shape.rows - begin);
      const T* const gathered = Gather({rows, shape.map}, x + begin * from.size());
      if (gathered == nullptr) return;
      Run(begin > 0 ? Kind::kWeightGradientAdded : kind, {rows, dense},
          {{DNNL_ARG_SRC, gathered}, {DNNL_ARG_DIFF_DST, dy + begin * to.size()}}, dweight);
    }
    return;
  }
  Run(kind, shape, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}}, dweight);
}

template <typename T>
void CpuConvolution<T>::InputGradient(const ImagesShape& shape, const T* dy, const T* weight,
                                      float* dx) {
  if (shape.rows == 0) return;
  Run(Kind::kInputGradient, shape, {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}}, weight);
}

template <typename T>
absl::Status CpuConvolution<T>::TakeStatus() {
  absl::Status status = std::move(status_);
  status_ = absl::OkStatus();
  return status;
}

template class CpuConvolution<float>;
template class CpuConvolution<Bf16>;

}  // namespace tessera

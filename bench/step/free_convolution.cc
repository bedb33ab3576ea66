#include "bench/step/free_convolution.h"

#include <omp.h>

#include <unordered_map>

#include "dnnl.hpp"

namespace tessera {
namespace {

using dnnl::memory;

constexpr auto kF32 = memory::data_type::f32;

memory::desc Images(int64_t rows, const Image& image, memory::format_tag tag) {
  return memory::desc({rows, image.channels, image.height, image.width}, kF32, tag);
}

memory::desc Weights(const ImageMap& map, memory::format_tag tag) {
  return memory::desc({map.to.channels, map.from.channels, map.window.height, map.window.width},
                      kF32, tag);
}

}  // namespace

struct FreeConvolution::Parts {
  using Arguments = std::unordered_map<int, memory>;

  explicit Parts(const ImagesShape& shape) : shape(shape) {}

  void Put(const std::vector<float>& values, const memory::desc& plain, memory to) {
    memory from(plain, engine, const_cast<float*>(values.data()));
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  }
  std::vector<float> Get(memory from, const memory::desc& plain) {
    std::vector<float> values(plain.get_size() / sizeof(float));
    memory to(plain, engine, values.data());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    return values;
  }

  const ImagesShape shape;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive forward, weight_gradient, input_gradient;
  Arguments forward_arguments, weight_arguments, input_arguments;
};

FreeConvolution::FreeConvolution(const ImagesShape& shape, int threads)
    : parts_(std::make_unique<Parts>(shape)), threads_(threads) {
  omp_set_num_threads(threads);
  Parts& parts = *parts_;
  const auto any = memory::format_tag::any;
  const Window& window = shape.map.window;
  const memory::dims strides = {window.stride_y, window.stride_x};
  const memory::dims padding = {window.padding_y, window.padding_x};
  const auto direct = dnnl::algorithm::convolution_direct;
  const memory::desc x = Images(shape.rows, shape.map.from, any),
                     y = Images(shape.rows, shape.map.to, any), w = Weights(shape.map, any);
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, direct, x, w, y, strides, padding, padding},
      parts.engine);
  const dnnl::convolution_backward_weights::primitive_desc weight(
      {direct, x, w, y, strides, padding, padding}, parts.engine, forward);
  const dnnl::convolution_backward_data::primitive_desc input(
      {direct, x, w, y, strides, padding, padding}, parts.engine, forward);
  parts.forward = dnnl::convolution_forward(forward);
  parts.weight_gradient = dnnl::convolution_backward_weights(weight);
  parts.input_gradient = dnnl::convolution_backward_data(input);
  parts.forward_arguments = {{DNNL_ARG_SRC, {forward.src_desc(), parts.engine}},
                             {DNNL_ARG_WEIGHTS, {forward.weights_desc(), parts.engine}},
                             {DNNL_ARG_DST, {forward.dst_desc(), parts.engine}}};
  parts.weight_arguments = {{DNNL_ARG_SRC, {weight.src_desc(), parts.engine}},
                            {DNNL_ARG_DIFF_DST, {weight.diff_dst_desc(), parts.engine}},
                            {DNNL_ARG_DIFF_WEIGHTS, {weight.diff_weights_desc(), parts.engine}}};
  parts.input_arguments = {{DNNL_ARG_DIFF_DST, {input.diff_dst_desc(), parts.engine}},
                           {DNNL_ARG_WEIGHTS, {input.weights_desc(), parts.engine}},
                           {DNNL_ARG_DIFF_SRC, {input.diff_src_desc(), parts.engine}}};
}

FreeConvolution::~FreeConvolution() = default;

void FreeConvolution::SetInputs(const std::vector<float>& x, const std::vector<float>& w,
                                const std::vector<float>& dy) {
  Parts& parts = *parts_;
  const memory::desc x_desc =
                         Images(parts.shape.rows, parts.shape.map.from, memory::format_tag::nhwc),
                     dy_desc =
                         Images(parts.shape.rows, parts.shape.map.to, memory::format_tag::nhwc),
                     w_desc = Weights(parts.shape.map, memory::format_tag::oihw);
  parts.Put(x, x_desc, parts.forward_arguments[DNNL_ARG_SRC]);
  parts.Put(w, w_desc, parts.forward_arguments[DNNL_ARG_WEIGHTS]);
  parts.Put(x, x_desc, parts.weight_arguments[DNNL_ARG_SRC]);
  parts.Put(dy, dy_desc, parts.weight_arguments[DNNL_ARG_DIFF_DST]);
  parts.Put(dy, dy_desc, parts.input_arguments[DNNL_ARG_DIFF_DST]);
  parts.Put(w, w_desc, parts.input_arguments[DNNL_ARG_WEIGHTS]);
}

void FreeConvolution::Forward() {
  omp_set_num_threads(threads_);
  parts_->forward.execute(parts_->stream, parts_->forward_arguments);
  parts_->stream.wait();
}

void FreeConvolution::WeightGradient() {
  omp_set_num_threads(threads_);
  parts_->weight_gradient.execute(parts_->stream, parts_->weight_arguments);
  parts_->stream.wait();
}

void FreeConvolution::InputGradient() {
  omp_set_num_threads(threads_);
  parts_->input_gradient.execute(parts_->stream, parts_->input_arguments);
  parts_->stream.wait();
}

std::vector<float> FreeConvolution::y() const {
  return parts_->Get(parts_->forward_arguments[DNNL_ARG_DST],
                     Images(parts_->shape.rows, parts_->shape.map.to, memory::format_tag::nhwc));
}

std::vector<float> FreeConvolution::dw() const {
  return parts_->Get(parts_->weight_arguments[DNNL_ARG_DIFF_WEIGHTS],
                     Weights(parts_->shape.map, memory::format_tag::oihw));
}

std::vector<float> FreeConvolution::dx() const {
  return parts_->Get(parts_->input_arguments[DNNL_ARG_DIFF_SRC],
                     Images(parts_->shape.rows, parts_->shape.map.from, memory::format_tag::nhwc));
}

}  // namespace tessera

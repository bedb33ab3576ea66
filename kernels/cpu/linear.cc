#include "kernels/cpu/linear.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "dnnl.hpp"
#include "kernels/cpu/dnnl_room.h"

namespace tessera {
namespace {

using dnnl::memory;

// The most shapes that stay prepared: a network has three per linear layer and size of batch.
constexpr size_t kProductsMax = 1024;

memory::desc RowMajor(int64_t rows, int64_t columns, memory::data_type type) {
  return memory::desc({rows, columns}, type, memory::format_tag::ab);
}

// The descriptor that reads the bytes of a [rows, columns] matrix as their transpose: [columns, rows].
memory::desc Transposed(int64_t rows, int64_t columns, memory::data_type type) {
  return memory::desc({columns, rows}, type, memory::format_tag::ba);
}

template <typename T>
constexpr memory::data_type kType =
    std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

}  // namespace

// A primitive with its arguments; a run only sets the addresses.
template <typename T>
struct CpuLinear<T>::Product {
  dnnl::primitive primitive;
  memory a, b, bias, out, scratch;
  std::unordered_map<int, memory> arguments;
};

template <typename T>
struct CpuLinear<T>::Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive_attr attributes;
  dnnl::primitive_attr adding;  // the same, and the result comes on top of what is there
  // Products run one after the other, so that the largest one's scratch is all that there is.
  DnnlRoom scratch;
};

template <typename T>
CpuLinear<T>::CpuLinear(const CpuThreads& threads)
    : threads_(threads), engine_(std::make_unique<Engine>()) {
  // oneDNN's own scratch would be shared among the threads that call it.
  engine_->attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  engine_->adding.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops sum;
  sum.append_sum(1.0f);
  engine_->adding.set_post_ops(sum);
}

template <typename T>
CpuLinear<T>::~CpuLinear() = default;

template <typename T>
typename CpuLinear<T>::Product& CpuLinear<T>::Prepared(Kind kind, const LinearShape& s) {
  const Key key(kind, s.rows, s.inputs, s.outputs);
  if (const auto found = products_.find(key); found != products_.end()) return found->second;
  // All are dropped at once. Only a job of very many shapes comes here, and each is prepared again when it is used.
  if (products_.size() >= kProductsMax) products_.clear();

  const memory::data_type type = kType<T>;
  const memory::data_type f32 = memory::data_type::f32;
  const dnnl::engine& engine = engine_->engine;
  const dnnl::primitive_attr& attributes = engine_->attributes;
  Product product;
  // Memories are bound without an address; each run sets those of its arguments.
  const auto bind = [&](const auto& description, int a, const memory::desc& a_desc, int b,
                        const memory::desc& b_desc, int out, const memory::desc& out_desc) {
    product.a = memory(a_desc, engine, DNNL_MEMORY_NONE);
    product.b = memory(b_desc, engine, DNNL_MEMORY_NONE);
    product.out = memory(out_desc, engine, DNNL_MEMORY_NONE);
    product.scratch = memory(description.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    product.arguments = {
        {a, product.a}, {b, product.b}, {out, product.out}, {DNNL_ARG_SCRATCHPAD, product.scratch}};
  };
  if (kind == Kind::kForward || kind == Kind::kForwardWithBias) {
    const memory::desc x = RowMajor(s.rows, s.inputs, type);
    // A layer's weight is [outputs, inputs], so the product reads it turned.
    const memory::desc w = Transposed(s.outputs, s.inputs, type);
    const memory::desc y = RowMajor(s.rows, s.outputs, f32);
    const memory::desc bias = kind == Kind::kForward ? memory::desc() : RowMajor(1, s.outputs, f32);
    const dnnl::matmul::primitive_desc description({x, w, bias, y}, attributes, engine);
    bind(description, DNNL_ARG_SRC, x, DNNL_ARG_WEIGHTS, w, DNNL_ARG_DST, y);
    if (kind == Kind::kForwardWithBias) {
      product.bias = memory(bias, engine, DNNL_MEMORY_NONE);
      product.arguments[DNNL_ARG_BIAS] = product.bias;
    }
    product.primitive = dnnl::matmul(description);
    return products_.emplace(key, std::move(product)).first->second;
  }
  // oneDNN's gradient of weights cannot add to what is there; a matmul of dy^T and x can.
  if (kind == Kind::kWeightGradientAdded) {
    const memory::desc dy = Transposed(s.rows, s.outputs, type);
    const memory::desc x = RowMajor(s.rows, s.inputs, type);
    const memory::desc dw = RowMajor(s.outputs, s.inputs, f32);
    const dnnl::matmul::primitive_desc description({dy, x, dw}, engine_->adding, engine);
    bind(description, DNNL_ARG_SRC, dy, DNNL_ARG_WEIGHTS, x, DNNL_ARG_DST, dw);
    product.primitive = dnnl::matmul(description);
    return products_.emplace(key, std::move(product)).first->second;
  }
  // The gradients, like all of oneDNN's backward primitives, want the forward one as a hint.
  const memory::desc w_hint = RowMajor(s.outputs, s.inputs, type);
  const dnnl::inner_product_forward::primitive_desc hint(
      {dnnl::prop_kind::forward_training, RowMajor(s.rows, s.inputs, type), w_hint,
       RowMajor(s.rows, s.outputs, f32)},
      attributes, engine);
  const memory::desc dy = RowMajor(s.rows, s.outputs, type);
  if (kind == Kind::kWeightGradient) {
    const memory::desc x = RowMajor(s.rows, s.inputs, type);
    const memory::desc dw = RowMajor(s.outputs, s.inputs, f32);
    const dnnl::inner_product_backward_weights::primitive_desc description({x, dw, dy}, attributes,
                                                                           engine, hint);
    bind(description, DNNL_ARG_SRC, x, DNNL_ARG_DIFF_DST, dy, DNNL_ARG_DIFF_WEIGHTS, dw);
    product.primitive = dnnl::inner_product_backward_weights(description);
  } else {
    const memory::desc dx = RowMajor(s.rows, s.inputs, f32);
    const dnnl::inner_product_backward_data::primitive_desc description({dx, w_hint, dy},
                                                                        attributes, engine, hint);
    bind(description, DNNL_ARG_DIFF_DST, dy, DNNL_ARG_WEIGHTS, w_hint, DNNL_ARG_DIFF_SRC, dx);
    product.primitive = dnnl::inner_product_backward_data(description);
  }
  return products_.emplace(key, std::move(product)).first->second;
}

template <typename T>
void CpuLinear<T>::Run(Kind kind, const LinearShape& shape, const void* a, const void* b,
                       const void* bias, void* out) {
  // Threads of oneDNN are those of the calling thread's OpenMP, which is set up here.
  threads_.Enter();
  try {
    Product& product = Prepared(kind, shape);
    product.a.set_data_handle(const_cast<void*>(a));
    product.b.set_data_handle(const_cast<void*>(b));
    product.out.set_data_handle(out);
    if (bias != nullptr) product.bias.set_data_handle(const_cast<void*>(bias));
    product.scratch.set_data_handle(
        engine_->scratch.Of(product.scratch.get_desc(), engine_->engine));
    product.primitive.execute(engine_->stream, product.arguments);
    // The caller may read the result at once.
    engine_->stream.wait();
  } catch (const dnnl::error& error) {
    const std::string what = absl::StrCat("oneDNN: product of ", shape.rows, " rows, ",
                                          shape.inputs, " -> ", shape.outputs, ": ", error.what());
    // Running out of memory is the job's size; every other error is a fault of this code.
    status_.Update(error.status == dnnl_out_of_memory ? absl::ResourceExhaustedError(what)
                                                      : absl::InternalError(what));
  }
}

template <typename T>
void CpuLinear<T>::Forward(const LinearShape& shape, const T* x, const T* weight, const float* bias,
                           float* y) {
  if (shape.rows == 0 || shape.outputs == 0) return;
  // A sum over no inputs is 0, so that y is the bias; oneDNN has no product over an empty extent.
  if (shape.inputs == 0) {
    for (int64_t row = 0; row < shape.rows; ++row, y += shape.outputs) {
      if (bias == nullptr) {
        std::fill_n(y, shape.outputs, 0.0f);
      } else {
        std::copy_n(bias, shape.outputs, y);
      }
    }
    return;
  }
  Run(bias == nullptr ? Kind::kForward : Kind::kForwardWithBias, shape, x, weight, bias, y);
}

template <typename T>
void CpuLinear<T>::WeightGradient(const LinearShape& shape, const T* x, const T* dy, WriteMode mode,
                                  float* dweight) {
  if (shape.inputs == 0 || shape.outputs == 0) return;
  if (mode == WriteMode::kAdd) {
    if (shape.rows > 0) Run(Kind::kWeightGradientAdded, shape, dy, x, nullptr, dweight);
    return;
  }
  // Without rows the gradient is a sum over nothing.
  if (shape.rows == 0) {
    std::fill_n(dweight, shape.outputs * shape.inputs, 0.0f);
    return;
  }
  Run(Kind::kWeightGradient, shape, x, dy, nullptr, dweight);
}

template <typename T>
void CpuLinear<T>::InputGradient(const LinearShape& shape, const T* dy, const T* weight,
                                 float* dx) {
  if (shape.rows == 0 || shape.inputs == 0) return;
  // Without outputs nothing depends on the inputs.
  if (shape.outputs == 0) {
    std::fill_n(dx, shape.rows * shape.inputs, 0.0f);
    return;
  }
  Run(Kind::kInputGradient, shape, dy, weight, nullptr, dx);
}

template <typename T>
absl::Status CpuLinear<T>::TakeStatus() {
  // An error is told once; the next step begins anew.
  absl::Status status = std::move(status_);
  status_ = absl::OkStatus();
  return status;
}

template class CpuLinear<float>;
template class CpuLinear<Bf16>;

}  // namespace tessera

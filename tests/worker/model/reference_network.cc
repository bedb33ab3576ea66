#include "tests/worker/model/reference_network.h"

#include <algorithm>
#include <cmath>

#include "common/base/philox.h"
#include "kernels/bf16.h"

namespace tessera {
namespace {

double Dot(int64_t n, const double* a, const double* b) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(int64_t n, double factor, const double* x, double* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace

ReferenceNetwork::ReferenceNetwork(const v1::Model& model, bool bf16_factors)
    : model_(model), bf16_factors_(bf16_factors) {
  int64_t width = 1;
  for (const int64_t extent : model.input()) width *= extent;
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    LayerPlan plan{i, width, width};
    if (layer.has_linear()) {
      plan.outputs = layer.linear().units();
      plan.weight = static_cast<int>(parameters.size());
      parameters.emplace_back(plan.outputs * plan.inputs);
      if (layer.linear().bias()) {
        plan.bias = static_cast<int>(parameters.size());
        parameters.emplace_back(plan.outputs);
      }
    } else if (layer.has_batch_norm() && layer.batch_norm().affine()) {
      plan.weight = static_cast<int>(parameters.size());
      parameters.emplace_back(width);
      plan.bias = static_cast<int>(parameters.size());
      parameters.emplace_back(width);
    }
    width = plan.outputs;
    layers_.push_back(plan);
  }
  gradients = parameters;
}

Matrix ReferenceNetwork::Factor(const Matrix& values) const {
  Matrix rounded = values;
  if (bf16_factors_) {
    for (double& value : rounded) value = Widen(RoundToBf16(static_cast<float>(value)));
  }
  return rounded;
}

double ReferenceNetwork::Kept(const LayerPlan& plan, const StepKey& key, int64_t element) const {
  const double p = model_.layers(plan.layer).dropout().probability();
  const PhiloxBlock block = Philox(key.seed, Stream::kDropout, key.step,
                                   key.rank << 48 | static_cast<uint64_t>(plan.layer) << 40 |
                                       static_cast<uint64_t>(element / 4));
  return static_cast<double>(UnitFloat(block[element % 4])) < p ? 0.0 : 1.0 / (1.0 - p);
}

// `used` gives the statistics of a batch norm, or receives x's own where it is empty.
Matrix ReferenceNetwork::Forward(const LayerPlan& plan, int64_t rows, const Matrix& x,
                                 const StepKey& key, Statistics* used) const {
  const v1::Layer& layer = model_.layers(plan.layer);
  const int64_t in = plan.inputs, out = plan.outputs;
  Matrix y(rows * out);
  if (layer.has_linear()) {
    const Matrix a = Factor(x), w = Factor(parameters[plan.weight]);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        const double bias = plan.bias < 0 ? 0.0 : parameters[plan.bias][o];
        y[r * out + o] = bias + Dot(in, &a[r * in], &w[o * in]);
      }
    }
  } else if (layer.has_batch_norm()) {
    if (used->mean.empty()) {
      for (int64_t c = 0; c < in; ++c) {
        double mean = 0, variance = 0;
        for (int64_t r = 0; r < rows; ++r) mean += x[r * in + c] / rows;
        for (int64_t r = 0; r < rows; ++r) variance += std::pow(x[r * in + c] - mean, 2) / rows;
        used->mean.push_back(mean);
        used->sigma.push_back(std::sqrt(variance + layer.batch_norm().epsilon()));
      }
    }
    for (int64_t i = 0; i < rows * in; ++i) {
      const int64_t c = i % in;
      y[i] = (x[i] - used->mean[c]) / used->sigma[c];
      if (plan.weight >= 0) y[i] = y[i] * parameters[plan.weight][c] + parameters[plan.bias][c];
    }
  } else if (layer.has_relu()) {
    for (int64_t i = 0; i < rows * in; ++i) y[i] = std::max(0.0, x[i]);
  } else if (layer.has_dropout()) {
    for (int64_t i = 0; i < rows * in; ++i) y[i] = x[i] * Kept(plan, key, i);
  }
  return y;
}

Matrix ReferenceNetwork::Backward(const LayerPlan& plan, int64_t rows, const Matrix& x,
                                  const Matrix& dy, const StepKey& key) {
  const v1::Layer& layer = model_.layers(plan.layer);
  const int64_t in = plan.inputs, out = plan.outputs;
  Matrix dx(rows * in, 0.0);
  if (layer.has_linear()) {
    const Matrix a = Factor(x), w = Factor(parameters[plan.weight]), d = Factor(dy);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        AddScaled(in, d[r * out + o], &a[r * in], &gradients[plan.weight][o * in]);
        AddScaled(in, d[r * out + o], &w[o * in], &dx[r * in]);
        if (plan.bias >= 0) gradients[plan.bias][o] += dy[r * out + o];
      }
    }
  } else if (layer.has_batch_norm()) {
    Statistics s;
    Forward(plan, rows, x, key, &s);
    for (int64_t c = 0; c < in; ++c) {
      double sum = 0, sum_hat = 0;
      const double scale = plan.weight < 0 ? 1.0 : parameters[plan.weight][c];
      for (int64_t r = 0; r < rows; ++r) {
        sum += dy[r * in + c];
        sum_hat += dy[r * in + c] * (x[r * in + c] - s.mean[c]) / s.sigma[c];
      }
      if (plan.weight >= 0) gradients[plan.weight][c] = sum_hat;
      if (plan.weight >= 0) gradients[plan.bias][c] = sum;
      for (int64_t r = 0; r < rows; ++r) {
        const double hat = (x[r * in + c] - s.mean[c]) / s.sigma[c];
        dx[r * in + c] = scale / s.sigma[c] * (dy[r * in + c] - sum / rows - hat * sum_hat / rows);
      }
    }
  } else if (layer.has_relu()) {
    for (int64_t i = 0; i < rows * in; ++i) dx[i] = x[i] > 0 ? dy[i] : 0.0;
  } else if (layer.has_dropout()) {
    for (int64_t i = 0; i < rows * in; ++i) dx[i] = dy[i] * Kept(plan, key, i);
  }
  return dx;
}

double ReferenceNetwork::Loss(const Matrix& logits, const Batch& batch, Matrix* gradient) const {
  const int64_t n = layers_.back().outputs;
  const double rows = static_cast<double>(batch.rows);
  double loss = 0;
  if (gradient != nullptr) gradient->assign(logits.size(), 0.0);
  for (int64_t r = 0; r < batch.rows; ++r) {
    const double* z = &logits[r * n];
    const double largest = *std::max_element(z, z + n);
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += std::exp(z[j] - largest);
    for (int64_t j = 0; j < n; ++j) {
      double slope;
      if (model_.loss() == "softmax_cross_entropy") {
        const bool is_label = batch.labels[r] == j;
        if (is_label) loss += (largest + std::log(sum) - z[j]) / rows;
        slope = std::exp(z[j] - largest) / sum - (is_label ? 1.0 : 0.0);
      } else {
        double t = n == 1 && batch.targets == nullptr ? batch.labels[r] : 0.0;
        if (n > 1 && batch.targets == nullptr) t = batch.labels[r] == j ? 1.0 : 0.0;
        if (batch.targets != nullptr) t = batch.targets[r * n + j];
        const double softplus =
            z[j] > 0 ? z[j] + std::log1p(std::exp(-z[j])) : std::log1p(std::exp(z[j]));
        loss += (softplus - t * z[j]) / rows;
        slope = 1.0 / (1.0 + std::exp(-z[j])) - t;
      }
      if (gradient != nullptr) (*gradient)[r * n + j] = slope / rows;
    }
  }
  return loss;
}

double ReferenceNetwork::TrainLoss(const Batch& batch, const StepKey& key, bool with_gradients) {
  std::vector<Matrix> values = {
      Matrix(batch.inputs, batch.inputs + batch.rows * layers_.front().inputs)};
  for (const LayerPlan& plan : layers_) {
    Statistics own;
    values.push_back(Forward(plan, batch.rows, values.back(), key, &own));
  }
  Matrix dy;
  const double loss = Loss(values.back(), batch, with_gradients ? &dy : nullptr);
  if (!with_gradients) return loss;
  for (Matrix& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.0);
  for (int i = static_cast<int>(layers_.size()) - 1; i >= 0; --i) {
    dy = Backward(layers_[i], batch.rows, values[i], dy, key);
  }
  return loss;
}

Matrix ReferenceNetwork::CalibratedLogits(const Batch& sample, const Batch& batch) {
  Matrix sampled(sample.inputs, sample.inputs + sample.rows * layers_.front().inputs);
  Matrix values(batch.inputs, batch.inputs + batch.rows * layers_.front().inputs);
  statistics.clear();
  for (const LayerPlan& plan : layers_) {
    if (model_.layers(plan.layer).has_dropout()) continue;
    Statistics of_sample;
    sampled = Forward(plan, sample.rows, sampled, {}, &of_sample);
    values = Forward(plan, batch.rows, values, {}, &of_sample);
    if (model_.layers(plan.layer).has_batch_norm()) statistics.push_back(of_sample);
  }
  return values;
}

}  // namespace tessera

#include "tests/worker/model/reference_network.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

double Phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double Share(double x) { return 1 / (1 + std::exp(-x)); }

// The functions of one value and their slopes, by the formulas of job.proto.
bool IsFunction(const v1::Layer& layer) {
  return layer.has_gelu() || layer.has_tanh() || layer.has_sigmoid() || layer.has_silu() ||
         layer.has_leaky_relu();
}
double FunctionOf(const v1::Layer& layer, double x) {
  if (layer.has_gelu() && layer.gelu().approximate() == "tanh") {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  if (layer.has_gelu()) return x * Phi(x);
  if (layer.has_tanh()) return std::tanh(x);
  if (layer.has_sigmoid()) return Share(x);
  if (layer.has_silu()) return x * Share(x);
  return x > 0 ? x : layer.leaky_relu().slope() * x;
}
double SlopeOf(const v1::Layer& layer, double x) {
  if (layer.has_gelu() && layer.gelu().approximate() == "tanh") {
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double du = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + std::tanh(u)) + 0.5 * x * (1 - std::pow(std::tanh(u), 2)) * du;
  }
  if (layer.has_gelu()) return Phi(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
  if (layer.has_tanh()) return 1 - std::pow(std::tanh(x), 2);
  if (layer.has_sigmoid()) return Share(x) * (1 - Share(x));
  if (layer.has_silu()) return Share(x) * (1 + x * (1 - Share(x)));
  return x > 0 ? 1 : layer.leaky_relu().slope();
}

}  // namespace

ReferenceNetwork::ReferenceNetwork(const v1::Model& model, bool bf16_factors)
    : model_(model), bf16_factors_(bf16_factors) {
  int64_t channels = 1, height = 1, width = 1;
  for (const int64_t extent : model.input()) channels *= extent;
  const auto is_window = [](const v1::Layer& layer) {
    return layer.has_conv2d() || layer.has_max_pool() || layer.has_avg_pool();
  };
  for (const v1::Layer& layer : model.layers()) {
    if (layer.has_linear()) break;
    if (!is_window(layer) && !layer.has_local_response_norm()) continue;
    channels = model.input(0);
    height = model.input(1);
    width = model.input(2);
  }
  const auto add = [&](int64_t weights, int64_t biases, LayerPlan* plan) {
    plan->weight = static_cast<int>(parameters.size());
    parameters.emplace_back(weights);
    if (biases == 0) return;
    plan->bias = static_cast<int>(parameters.size());
    parameters.emplace_back(biases);
  };
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    LayerPlan plan{i, channels * height * width, channels * height * width};
    plan.channels = channels;
    plan.height = height;
    plan.width = width;
    if (layer.has_linear()) {
      channels = layer.linear().units();
      height = width = 1;
      add(channels * plan.inputs, layer.linear().bias() ? channels : 0, &plan);
    } else if (layer.has_batch_norm() && layer.batch_norm().affine()) {
      add(channels, channels, &plan);
    } else if (layer.has_layer_norm() && layer.layer_norm().affine()) {
      add(plan.inputs, plan.inputs, &plan);
    } else if (layer.has_group_norm()) {
      plan.groups = layer.group_norm().groups();
      if (layer.group_norm().affine()) add(channels, channels, &plan);
    } else if (is_window(layer)) {
      const auto read = [&](const auto& keys, int64_t default_stride) {
        const int64_t whole[2] = {height, width};
        for (int d = 0; d < 2; ++d) {
          const auto of = [&](const auto& list, int64_t absent) {
            return list.empty() ? absent : list.Get(std::min(d, list.size() - 1));
          };
          plan.kernel[d] = of(keys.kernel(), whole[d]);
          plan.stride[d] = of(keys.stride(), default_stride > 0 ? default_stride : plan.kernel[d]);
          plan.padding[d] = of(keys.padding(), 0);
        }
      };
      if (layer.has_conv2d()) {
        const v1::Conv2d& conv = layer.conv2d();
        read(conv, 1);
        plan.groups = std::max<int64_t>(1, conv.groups());
        for (int d = 0; d < 2 && !conv.dilation().empty(); ++d) {
          plan.dilation[d] = conv.dilation(std::min(d, conv.dilation_size() - 1));
        }
      }
      if (layer.has_max_pool()) read(layer.max_pool(), 0);
      if (layer.has_avg_pool()) read(layer.avg_pool(), 0);
      const auto places = [&](int64_t extent, int d) {
        const int64_t span = (plan.kernel[d] - 1) * plan.dilation[d] + 1;
        return (extent + 2 * plan.padding[d] - span) / plan.stride[d] + 1;
      };
      height = places(height, 0);
      width = places(width, 1);
      if (layer.has_conv2d()) {
        const int64_t taps = channels / plan.groups * plan.kernel[0] * plan.kernel[1];
        channels = layer.conv2d().channels();
        add(channels * taps, layer.conv2d().bias() ? channels : 0, &plan);
      }
    }
    plan.to_channels = channels;
    plan.to_height = height;
    plan.to_width = width;
    plan.outputs = channels * height * width;
    layers_.push_back(plan);
  }
  gradients = parameters;
}

template <typename F>
void ReferenceNetwork::ForEachTap(const LayerPlan& plan, bool own_channel_only, const F& f) {
  for (int64_t o = 0; o < plan.to_channels; ++o) {
    for (int64_t p = 0; p < plan.to_height; ++p) {
      for (int64_t q = 0; q < plan.to_width; ++q) {
        const int64_t out = (o * plan.to_height + p) * plan.to_width + q;
        const int64_t group_channels = plan.channels / plan.groups;
        const int64_t first = o / (plan.to_channels / plan.groups) * group_channels;
        for (int64_t c = own_channel_only ? o : first;
             c < (own_channel_only ? o + 1 : first + group_channels); ++c) {
          for (int64_t i = 0; i < plan.kernel[0]; ++i) {
            for (int64_t j = 0; j < plan.kernel[1]; ++j) {
              const int64_t y = p * plan.stride[0] - plan.padding[0] + i * plan.dilation[0];
              const int64_t x = q * plan.stride[1] - plan.padding[1] + j * plan.dilation[1];
              const bool inside = y >= 0 && y < plan.height && x >= 0 && x < plan.width;
              f(inside ? (c * plan.height + y) * plan.width + x : -1, out,
                ((c - first) * plan.kernel[0] + i) * plan.kernel[1] + j);
            }
          }
        }
      }
    }
  }
}

int64_t ReferenceNetwork::WeightAt(const LayerPlan& plan, bool is_layer_norm, int64_t i) {
  return is_layer_norm ? i % plan.inputs : i % plan.inputs / (plan.height * plan.width);
}

int64_t ReferenceNetwork::GroupAt(const LayerPlan& plan, int64_t i) {
  const int64_t in_row = i % plan.inputs * plan.groups / plan.inputs;
  return i / plan.inputs * plan.groups + in_row;
}

ReferenceNetwork::Normalised ReferenceNetwork::NormalisedBy(const LayerPlan& plan, int64_t rows,
                                                            const Matrix& x) const {
  const v1::Layer& layer = model_.layers(plan.layer);
  const double epsilon =
      layer.has_layer_norm() ? layer.layer_norm().epsilon() : layer.group_norm().epsilon();
  const double count = static_cast<double>(plan.inputs / plan.groups);
  const auto values = static_cast<size_t>(rows * plan.inputs);
  std::vector<double> mean(rows * plan.groups), variance(rows * plan.groups);
  for (size_t i = 0; i < values; ++i) mean[GroupAt(plan, i)] += x[i] / count;
  for (size_t i = 0; i < values; ++i) {
    variance[GroupAt(plan, i)] += std::pow(x[i] - mean[GroupAt(plan, i)], 2) / count;
  }
  Normalised made{Matrix(values), Matrix(values)};
  for (size_t i = 0; i < values; ++i) {
    made.inverse_sigma[i] = 1 / std::sqrt(variance[GroupAt(plan, i)] + epsilon);
    made.hat[i] = (x[i] - mean[GroupAt(plan, i)]) * made.inverse_sigma[i];
  }
  return made;
}

template <typename F>
void ReferenceNetwork::ForEachNeighbour(const LayerPlan& plan, int64_t rows, const F& f) const {
  const int64_t size = model_.layers(plan.layer).local_response_norm().size();
  const int64_t places = plan.height * plan.width;
  for (int64_t i = 0; i < rows * plan.inputs; ++i) {
    const int64_t channel = i % plan.inputs / places;
    const int64_t last = std::min(plan.channels - 1, channel + (size - 1) / 2);
    for (int64_t j = std::max<int64_t>(0, channel - size / 2); j <= last; ++j) {
      f(i, i + (j - channel) * places);
    }
  }
}

Matrix ReferenceNetwork::ResponseSums(const LayerPlan& plan, int64_t rows, const Matrix& x) const {
  const v1::LocalResponseNorm& norm = model_.layers(plan.layer).local_response_norm();
  Matrix sums(x.size(), norm.k());
  ForEachNeighbour(plan, rows, [&](int64_t i, int64_t j) {
    sums[i] += norm.alpha() / static_cast<double>(norm.size()) * x[j] * x[j];
  });
  return sums;
}

Matrix ReferenceNetwork::Factor(const Matrix& values) const {
  Matrix rounded = values;
  if (bf16_factors_) {
    for (double& value : rounded) value = Widen(RoundToBf16(static_cast<float>(value)));
  }
  return rounded;
}

// The network counts an image's values place by place.
double ReferenceNetwork::Kept(const LayerPlan& plan, const StepKey& key, int64_t i) const {
  const int64_t places = plan.height * plan.width;
  const int64_t in_row = i % plan.inputs;
  const int64_t element = i - in_row + in_row % places * plan.channels + in_row / places;
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
  } else if (layer.has_conv2d()) {
    const Matrix a = Factor(x), w = Factor(parameters[plan.weight]);
    const int64_t places = plan.to_height * plan.to_width;
    const int64_t taps = plan.channels / plan.groups * plan.kernel[0] * plan.kernel[1];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        y[r * out + o] = plan.bias < 0 ? 0.0 : parameters[plan.bias][o / places];
      }
      ForEachTap(plan, false, [&](int64_t from, int64_t to, int64_t tap) {
        if (from >= 0) y[r * out + to] += a[r * in + from] * w[to / places * taps + tap];
      });
    }
  } else if (layer.has_max_pool()) {
    std::fill(y.begin(), y.end(), -std::numeric_limits<double>::infinity());
    for (int64_t r = 0; r < rows; ++r) {
      ForEachTap(plan, true, [&](int64_t from, int64_t to, int64_t) {
        if (from >= 0) y[r * out + to] = std::max(y[r * out + to], x[r * in + from]);
      });
    }
  } else if (layer.has_avg_pool()) {
    for (int64_t r = 0; r < rows; ++r) {
      ForEachTap(plan, true, [&](int64_t from, int64_t to, int64_t) {
        if (from >= 0) y[r * out + to] += x[r * in + from] / (plan.kernel[0] * plan.kernel[1]);
      });
    }
  } else if (layer.has_batch_norm()) {
    const int64_t places = plan.height * plan.width;
    if (used->mean.empty()) {
      const double count = static_cast<double>(rows * places);
      used->mean.assign(plan.channels, 0.0);
      used->sigma.assign(plan.channels, 0.0);
      for (int64_t i = 0; i < rows * in; ++i) used->mean[i % in / places] += x[i] / count;
      for (int64_t i = 0; i < rows * in; ++i) {
        const int64_t c = i % in / places;
        used->sigma[c] += std::pow(x[i] - used->mean[c], 2) / count;
      }
      for (double& s : used->sigma) s = std::sqrt(s + layer.batch_norm().epsilon());
    }
    for (int64_t i = 0; i < rows * in; ++i) {
      const int64_t c = i % in / places;
      y[i] = (x[i] - used->mean[c]) / used->sigma[c];
      if (plan.weight >= 0) y[i] = y[i] * parameters[plan.weight][c] + parameters[plan.bias][c];
    }
  } else if (layer.has_layer_norm() || layer.has_group_norm()) {
    y = NormalisedBy(plan, rows, x).hat;
    for (int64_t i = 0; plan.weight >= 0 && i < rows * in; ++i) {
      const int64_t k = WeightAt(plan, layer.has_layer_norm(), i);
      y[i] = y[i] * parameters[plan.weight][k] + parameters[plan.bias][k];
    }
  } else if (layer.has_local_response_norm()) {
    const Matrix sums = ResponseSums(plan, rows, x);
    for (int64_t i = 0; i < rows * in; ++i) {
      y[i] = x[i] * std::pow(sums[i], -layer.local_response_norm().beta());
    }
  } else if (IsFunction(layer)) {
    for (int64_t i = 0; i < rows * in; ++i) y[i] = FunctionOf(layer, x[i]);
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
  } else if (layer.has_conv2d()) {
    const Matrix a = Factor(x), w = Factor(parameters[plan.weight]), d = Factor(dy);
    const int64_t places = plan.to_height * plan.to_width;
    const int64_t taps = plan.channels / plan.groups * plan.kernel[0] * plan.kernel[1];
    for (int64_t r = 0; r < rows; ++r) {
      ForEachTap(plan, false, [&](int64_t from, int64_t to, int64_t tap) {
        if (from < 0) return;
        const int64_t weight = to / places * taps + tap;
        gradients[plan.weight][weight] += d[r * out + to] * a[r * in + from];
        dx[r * in + from] += d[r * out + to] * w[weight];
      });
      for (int64_t o = 0; plan.bias >= 0 && o < out; ++o) {
        gradients[plan.bias][o / places] += dy[r * out + o];
      }
    }
  } else if (layer.has_max_pool()) {
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int64_t> largest(out, -1);
      ForEachTap(plan, true, [&](int64_t from, int64_t to, int64_t) {
        if (from < 0) return;
        if (largest[to] < 0 || x[r * in + from] > x[r * in + largest[to]]) largest[to] = from;
      });
      for (int64_t o = 0; o < out; ++o) dx[r * in + largest[o]] += dy[r * out + o];
    }
  } else if (layer.has_avg_pool()) {
    for (int64_t r = 0; r < rows; ++r) {
      ForEachTap(plan, true, [&](int64_t from, int64_t to, int64_t) {
        if (from >= 0) dx[r * in + from] += dy[r * out + to] / (plan.kernel[0] * plan.kernel[1]);
      });
    }
  } else if (layer.has_batch_norm()) {
    Statistics s;
    Forward(plan, rows, x, key, &s);
    const int64_t places = plan.height * plan.width;
    const double count = static_cast<double>(rows * places);
    std::vector<double> sum(plan.channels), sum_hat(plan.channels);
    const auto hat = [&](int64_t i, int64_t c) { return (x[i] - s.mean[c]) / s.sigma[c]; };
    for (int64_t i = 0; i < rows * in; ++i) {
      const int64_t c = i % in / places;
      sum[c] += dy[i];
      sum_hat[c] += dy[i] * hat(i, c);
    }
    if (plan.weight >= 0) {
      gradients[plan.weight] = sum_hat;
      gradients[plan.bias] = sum;
    }
    for (int64_t i = 0; i < rows * in; ++i) {
      const int64_t c = i % in / places;
      const double scale = plan.weight < 0 ? 1.0 : parameters[plan.weight][c];
      dx[i] = scale / s.sigma[c] * (dy[i] - sum[c] / count - hat(i, c) * sum_hat[c] / count);
    }
  } else if (layer.has_layer_norm() || layer.has_group_norm()) {
    const Normalised of = NormalisedBy(plan, rows, x);
    const double count = static_cast<double>(plan.inputs / plan.groups);
    Matrix slope = dy;
    std::vector<double> sum(rows * plan.groups), sum_hat(rows * plan.groups);
    for (int64_t i = 0; i < rows * in; ++i) {
      const int64_t k = WeightAt(plan, layer.has_layer_norm(), i), group = GroupAt(plan, i);
      if (plan.weight >= 0) {
        gradients[plan.weight][k] += dy[i] * of.hat[i];
        gradients[plan.bias][k] += dy[i];
        slope[i] *= parameters[plan.weight][k];
      }
      sum[group] += slope[i];
      sum_hat[group] += slope[i] * of.hat[i];
    }
    for (int64_t i = 0; i < rows * in; ++i) {
      const int64_t group = GroupAt(plan, i);
      dx[i] = of.inverse_sigma[i] *
              (slope[i] - sum[group] / count - of.hat[i] * sum_hat[group] / count);
    }
  } else if (layer.has_local_response_norm()) {
    const v1::LocalResponseNorm& norm = layer.local_response_norm();
    const Matrix sums = ResponseSums(plan, rows, x);
    for (int64_t i = 0; i < rows * in; ++i) dx[i] = dy[i] * std::pow(sums[i], -norm.beta());
    const double share = norm.alpha() / static_cast<double>(norm.size());
    ForEachNeighbour(plan, rows, [&](int64_t i, int64_t j) {
      dx[j] -= dy[i] * x[i] * norm.beta() * std::pow(sums[i], -norm.beta() - 1) * share * 2 * x[j];
    });
  } else if (IsFunction(layer)) {
    for (int64_t i = 0; i < rows * in; ++i) dx[i] = dy[i] * SlopeOf(layer, x[i]);
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
        // Smoothed in training alone.
        const double even = gradient == nullptr ? 0 : model_.label_smoothing();
        const double t = (batch.labels[r] == j ? 1 - even : 0) + even / static_cast<double>(n);
        if (t != 0) loss += t * (largest + std::log(sum) - z[j]) / rows;
        slope = std::exp(z[j] - largest) / sum - t;
      } else if (model_.loss() == "mean_squared_error") {
        const double t = batch.targets != nullptr ? batch.targets[r * n + j]
                         : batch.labels[r] == j   ? 1.0
                                                  : 0.0;
        const auto outputs = static_cast<double>(n);
        loss += (z[j] - t) * (z[j] - t) / outputs / rows;
        slope = 2 * (z[j] - t) / outputs;
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

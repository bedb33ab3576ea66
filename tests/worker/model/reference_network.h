// The network in f64 and plain loops, written from the formulas: what Network is held to.
#ifndef TESSERA_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_
#define TESSERA_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"
#include "worker/model/batch.h"

namespace tessera {

// Activations [rows, width], row-major; images are [channels, height, width], as PyTorch has them.
using Matrix = std::vector<double>;

class ReferenceNetwork {
 public:
  // With `bf16_factors`, x, W and dy are rounded to bf16 before each of a linear layer's three
  // products.
  explicit ReferenceNetwork(const v1::Model& model, bool bf16_factors = false);

  // One array per parameter, in ModelShape's order. The caller fills them.
  std::vector<Matrix> parameters;
  // After TrainLoss with gradients: of the mean loss.
  std::vector<Matrix> gradients;
  // After CalibratedLogits: the biased statistics of every batch norm over the whole sample.
  struct Statistics {
    Matrix mean;
    Matrix sigma;  // sqrt(variance + epsilon)
  };
  std::vector<Statistics> statistics;

  // Mean loss of the batch, with minibatch statistics and dropout.
  double TrainLoss(const Batch& batch, const StepKey& key, bool with_gradients);

  // Logits of `batch` under the statistics that the full network has on `sample`.
  Matrix CalibratedLogits(const Batch& sample, const Batch& batch);

  // Mean loss of logits; `gradient` may be null.
  double Loss(const Matrix& logits, const Batch& batch, Matrix* gradient) const;

 private:
  struct LayerPlan {
    int layer;
    int64_t inputs;
    int64_t outputs;
    int weight = -1;
    int bias = -1;
    // The extents before and behind it; those that are no images have a channel for each neuron.
    int64_t channels = 0, height = 1, width = 1;
    int64_t to_channels = 0, to_height = 1, to_width = 1;
    // Of convolution and pooling.
    int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
    // Of convolution and of group norm; 1 of layer norm.
    int64_t groups = 1;
  };
  // f(index into x or -1 in padding, index into y, index into a row of weights), rows apart, for each
  // output's value, channel by channel and place by place of its window.
  template <typename F>
  static void ForEachTap(const LayerPlan& plan, bool own_channel_only, const F& f);

  // The normalised values of a layer or group norm, [rows, inputs], and 1 / sigma for each.
  struct Normalised {
    Matrix hat;
    Matrix inverse_sigma;
  };
  Normalised NormalisedBy(const LayerPlan& plan, int64_t rows, const Matrix& x) const;
  // The entry of a layer or group norm's weight for value i.
  static int64_t WeightAt(const LayerPlan& plan, bool is_layer_norm, int64_t i);
  // The group of value i.
  static int64_t GroupAt(const LayerPlan& plan, int64_t i);
  // f(index of a value, index of one that is in its window) of a response norm.
  template <typename F>
  void ForEachNeighbour(const LayerPlan& plan, int64_t rows, const F& f) const;
  // k + alpha / size * the sum of squares, for each value.
  Matrix ResponseSums(const LayerPlan& plan, int64_t rows, const Matrix& x) const;

  Matrix Forward(const LayerPlan& plan, int64_t rows, const Matrix& x, const StepKey& key,
                 Statistics* used) const;
  Matrix Backward(const LayerPlan& plan, int64_t rows, const Matrix& x, const Matrix& dy,
                  const StepKey& key);
  double Kept(const LayerPlan& plan, const StepKey& key, int64_t i) const;

  Matrix Factor(const Matrix& values) const;

  const v1::Model model_;
  const bool bf16_factors_;
  std::vector<LayerPlan> layers_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_

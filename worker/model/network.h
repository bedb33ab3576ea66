// A worker's model: parameters, gradients, and the passes over a batch.
#ifndef TESSERA_WORKER_MODEL_NETWORK_H_
#define TESSERA_WORKER_MODEL_NETWORK_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "proto/job.pb.h"
#include "worker/model/batch.h"
#include "worker/model/batch_staging.h"
#include "worker/model/plan.h"
#include "worker/model/sparse_linear_stage.h"
#include "worker/model/stage.h"
#include "worker/model/step_numbers.h"

namespace tessera {

// What follows on gradients in the backward pass, while the layers before are at work.
class GradientWork {
 public:
  virtual ~GradientWork() = default;
  // The gradient of parameter i is there, of all rows of the minibatch, and the last thing queued in this
  // step that reads the parameter. Calls kernels and Memory::Fetch, the same ones in every step.
  virtual void Queue(int i) = 0;
  // In the place of Queue, of weight i, whose gradient is this product, not there, and wanted by nobody else: does
  // with the product what Queue does with the gradient. False: nothing was queued, and the gradient is to be there
  // first. The same answer for the same product in every step, as steps are repeated.
  virtual bool QueueProduct(int i, const WeightProduct& product) { return false; }
};

// Owns one array of all parameters and one of all gradients, in ModelShape's order, and the
// activations of batch_max rows: all that MemoryNeeded says, and nothing more later. The exchange
// reads and writes the arrays in place, where the host can address the device's memory. Elsewhere
// it has copies, which SendParameters and the Fetch functions bring up to date, and batches have
// three places on the device.
//
// Evaluation is in f32 whatever the precision of training, so that workers of one job that differ
// in it agree on the model's scores.
//
// Threading: one thread at a time, the backend's.
class Network {
 public:
  struct Options {
    int64_t batch_max = 0;
    Precision precision = Precision::kF32;
    // Batches have sparse rows, which the first layer reads; it is linear, and in f32.
    bool sparse_input = false;
    // With sparse_input: there is no gradient of the first weight, StepFirstWeight moves that
    // weight. For rules by which an entry without gradient stays what it is.
    bool steps_first_weight = false;
    // With steps_first_weight: rows of a minibatch that comes in pieces; the first layer's outputs have
    // gradients for so many, as its weight moves behind the last piece. 0: minibatches are in one.
    int64_t minibatch_max = 0;
    // It only evaluates: it holds no gradients and nothing else of training, whose calls it refuses.
    bool evaluates_only = false;
    // gradient() is there for a device whose memory is out of the host's reach, too. Each layer's
    // part comes while the layers before it are at work.
    bool fetches_gradients = false;
    // A half of the model, which only trains, on whole minibatches of dense rows; none: the whole (HalfOf).
    std::optional<LayerRange> layers = std::nullopt;
  };

  // Parameters and gradients start at zero. `backend` outlives the network.
  //   kInvalidArgument     no such model or loss, batch_max below 1, sparse_input for a model whose first
  //                        layer is not linear, or a half that HalfOf refuses, or with sparse_input or
  //                        evaluates_only
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  tf32 or bf16 on a device without it
  static absl::StatusOr<std::unique_ptr<Network>> Create(const v1::Model& model,
                                                         const Options& options, Backend& backend);

  const NetworkPlan& plan() const { return plan_; }
  const ModelShape& shape() const { return plan_.shape; }

  // Row-major values of parameter i of shape(), as the host sees them. The views live as long as the
  // network. Between calls the caller may write parameters; after SendParameters the next call sees
  // them.
  absl::Span<float> parameter(int i);
  absl::Span<const float> gradient(int i) const;
  // All of them with what pads each to a cache line, which stays zero. With steps_first_weight the
  // gradients begin with the second parameter's, and gradient(0) is empty.
  absl::Span<float> parameters();
  absl::Span<const float> gradients() const;
  // The same for the backend's kernels.
  absl::Span<float> device_parameter(int i) const;
  absl::Span<const float> device_gradient(int i) const;
  float* device_parameters() { return parameters_.data(); }
  const float* device_gradients() const { return gradients_.data(); }
  // Queued: what the host wrote goes to the device, or what kernels wrote comes to the host, where it
  // is there after Backend::Finish.
  void SendParameters() { parameters_view_.Send(); }
  void FetchParameters() { parameters_view_.Fetch(); }
  // The same for one of them.
  void SendParameter(int i) {
    parameters_view_.Send(plan_.parameter_offsets[i], shape().parameters[i].size());
  }
  void FetchParameter(int i) {
    parameters_view_.Fetch(plan_.parameter_offsets[i], shape().parameters[i].size());
  }
  // What an optimizer's kernels read in this network's steps.
  OptimizerNumbers* device_numbers() { return &numbers_.data()->optimizer; }

  // As the servers do at the job's start.
  void SetInitialValues(uint64_t seed);

  // Forward, backward: the gradients become those of the mean loss of the batch. Parameters stay.
  // On return the loss is known; the backward pass is queued, and its failures are the next call's
  // or Backend::Finish's. The batch may be reused. Values that are not finite are no error: they show in
  // the loss. With nothing changed:
  //   kInvalidArgument     rows outside [1, batch_max], no labels or targets, a label that the model does
  //                        not have; a piece of a minibatch for a half; Batch::adds or more for a network
  //                        that is no model's back, or adds in its first batch
  //   kFailedPrecondition  the network is a model's front
  absl::StatusOr<LossAndCount> TrainStep(const Batch& batch, const StepKey& key);

  // A step of a model's front, of which there is one at a time. BeginForward queues the forward pass; labels
  // are not read. To begin another step drops it. Activations waits for those at the cut: [rows, outputs], rows
  // of [channels, height, width]; they live until the next step is begun. FinishStep takes the gradient of
  // the mean loss with respect to them, of the same shape and the caller's again on return, and queues the
  // backward pass, which leaves gradients as TrainStep does; `work` as BeginStep's. The step is over then.
  //   kInvalidArgument     with nothing changed: a batch as TrainStep's, but for labels; a gradient of
  //                        another size
  //   kFailedPrecondition  the network is no front; no step is begun
  absl::Status BeginForward(const Batch& batch, const StepKey& key);
  absl::StatusOr<absl::Span<const float>> Activations();
  absl::Status FinishStep(absl::Span<const float> gradient, GradientWork* work = nullptr);
  // A model's back takes steps as the whole does, on activations. This waits for all that is queued, and
  // returns the gradient of the mean loss of the batch that was begun last with respect to its inputs: [rows,
  // inputs]. It lives until the next one is begun. kFailedPrecondition: the network is no back, or has
  // taken no step.
  absl::StatusOr<absl::Span<const float>> InputGradient();
  // As others wait for that, the gradients of a back's first layer, where it is a product, are left for
  // this, which queues them: once behind every step, the batch being where it was, and no other step begun.
  void FinishBack();
  // Queued: gradients that Batch::more held back come to the host, where fetches_gradients.
  void FetchGradients() {
    if (gradients_view_.size() > 0) gradients_view_.Fetch();
  }

  // TrainStep in two: BeginStep queues it and checks what TrainStep checks, EndStep waits for the
  // loss. Kernels queued in between find the gradients, but for those that `work` had as products. Up to
  // kStepsBegunMax may be begun before the first of them is ended, so that a device has one to compute while
  // the host looks after another.
  // `work`, which stays for as long as the network takes steps, only where it takes_work.
  absl::Status BeginStep(const Batch& batch, const StepKey& key, GradientWork* work = nullptr);
  absl::StatusOr<LossAndCount> EndStep();  // the first that was begun, whose pieces are all ended
  // A minibatch may be given in pieces (Batch::minibatch_rows), in the order of its rows, each with a
  // Begin call of its own and the same key, of which kStepsBegunMax counts each. EndPiece waits for the first
  // that was begun, and returns the minibatch's loss if it is its last. The gradients add up to those of
  // the whole, from which they differ in the rounding of sums and in what batch norm takes for the
  // minibatch, which is the piece. Work is of the last piece only. With steps_first_weight the sparse rows
  // of all pieces lie in the same arrays, one behind the other.
  absl::StatusOr<std::optional<LossAndCount>> EndPiece();
  // Steps, or pieces, that were begun and not ended.
  int begun() const { return static_cast<int>(begun_.size()); }
  // Whether the device works on its own, so that it is worth while to begin a step before the last is ended.
  bool runs_ahead() const { return !backend_.memory().host_addressable(); }
  // Where it does: dense batches may be sent ahead, behind a BeginStep, and the next step may be on what was
  // sent, of a front BeginForwardOnNext. A batch that is not used is dropped.
  bool wants_next() const;
  bool holds_next() const { return next_.rows > 0; }
  absl::Status SendNext(const Batch& batch);
  // Where the next batch that any call is given may be written, with labels or targets; elsewhere it is
  // copied first. Drops what was sent ahead.
  BatchPlace Room(int64_t rows, bool has_labels) {
    DropNext();
    return staging_.Room(rows, options_.sparse_input ? 0 : shape().inputs(), has_labels,
                         is_front() ? 0 : shape().outputs());
  }
  absl::Status BeginStepOnNext(const StepKey& key, GradientWork* work = nullptr);
  absl::Status BeginForwardOnNext(const StepKey& key);
  // On such a device work may follow each gradient in the backward pass.
  bool takes_work() const { return wants_next() && !options_.evaluates_only; }

  // Where an optimizer that moves parameter i leaves it rounded as well, for products in bf16; null: nowhere.
  Bf16* rounded(int i) const { return rounded_[i]; }
  // The optimizer's step, which did so, was the last thing that moved parameters: the next step need not
  // round them.
  void KeepRounded() { keeps_rounded_ = true; }

  bool steps_first_weight() const { return options_.steps_first_weight; }
  // Where steps_first_weight: adds `a` times the first weight's gradient to it, in the columns of
  // the minibatch alone. Directly after TrainStep, while its rows are still there. Queued.
  void StepFirstWeight(float a);

  // The constants of every batch norm, over all rows of the sample together: stage by stage its
  // means, then as many 1/sqrt(variance + epsilon). Each layer sees the layers before it as
  // evaluation does. Empty for a model without batch norm. Holds the activations of one layer for
  // the whole sample meanwhile.
  //   kInvalidArgument    the sample has no rows, or rows without inputs
  //   kResourceExhausted  no memory
  absl::StatusOr<std::vector<float>> Calibrate(absl::Span<const Batch> sample);

  // Forward without dropout, with Calibrate's constants. kInvalidArgument as in TrainStep, and for
  // constants of another number. Halves do neither: kFailedPrecondition.
  absl::StatusOr<Scores> Score(const Batch& batch, absl::Span<const float> constants);

 private:
  Network(const v1::Model& model, const Options& options, NetworkPlan plan, Backend& backend);
  absl::Status Allocate();
  StageParameters ParametersOf(const StagePlan& plan) const;
  StageGradients GradientsOf(const StagePlan& plan, const Batch& batch) const;
  absl::Status Check(const Batch& batch) const;
  absl::Status CheckInputs(const Batch& batch) const;
  absl::Status CheckPart(const Batch& batch) const;
  absl::Status CheckWhole() const;
  absl::Status CheckHasLoss() const;
  bool is_front() const { return plan_.part == ModelPart::kFront; }
  bool is_back() const { return plan_.part == ModelPart::kBack; }
  absl::Status AllocateHalf();
  float* AddedAt(const StagePlan& plan, int parameter) const;
  void AddGradients(const StagePlan& plan);
  bool leaves_first_layer() const { return is_back() && plan_.stages[0].kind->is_product; }
  absl::StatusOr<Batch> CheckAndStage(const Batch& batch);
  void ForwardSparse(absl::Span<const Batch> sample, float* y);
  void DropNext();
  float* GradientAt(int i) const;  // null: there is none
  void QueueStep(const Batch& staged, const StepKey& key, GradientWork* work);
  // What differs between one step's kernels and another's, beside the work that follows gradients.
  struct StepForm {
    Batch batch;
    int sums_place;
    bool rounds;  // the weights
  };
  StepForm FormOf(const Batch& staged, const StepKey& key);
  void QueueForward(const StepForm& form);
  absl::Status QueueFront(const Batch& staged, const StepKey& key);
  absl::Status WaitForFront();
  // What is repeated of this form; nullptr: nothing is.
  struct Repeated;
  Repeated* RepeatedOn(const StepForm& form);
  Sequence* BackwardOf(Repeated* repeated, const GradientWork* work);
  void Backward(const Batch& batch, GradientWork* work);
  void BackwardOfStage(int i, const Batch& batch, const float* dy, float* dx, GradientWork* work);
  bool offers_products(const Batch& batch, const GradientWork* work) const;
  void FollowGradients(const StagePlan& plan, const Batch& batch, GradientWork* work);
  void FetchGradients(const StagePlan& plan);
  void BackwardSparse(const Batch& batch, const float* dy);

  const v1::Model model_;
  const Options options_;
  const NetworkPlan plan_;
  Backend& backend_;

  Buffer<float> parameters_;
  HostView<float> parameters_view_;
  // From the parameter on whose gradient is the first there is.
  Buffer<float> gradients_;
  int64_t gradients_begin_ = 0;
  HostView<float> gradients_view_;  // where fetches_gradients
  BatchStaging staging_;
  Batch next_;             // as it was staged; no rows: there is none
  int64_t rows_done_ = 0;  // of the minibatch that was begun last, those that were begun
  // What was begun, and how the host knows that its forward pass is done.
  struct Begun {
    int64_t minibatch_rows;
    bool is_last;  // piece of its minibatch
    int sums_place;
    Backend::Moment known;
  };
  absl::InlinedVector<Begun, kStepsBegunMax> begun_;  // in this order
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<Bf16*> rounded_;  // by parameter
  bool keeps_rounded_ = false;
  // With sparse_input; stages_[0] is null then.
  std::unique_ptr<SparseLinearStage> sparse_first_;
  struct Repeated {
    StepForm form;
    std::unique_ptr<Sequence> forward;
    // By the work that follows.
    std::vector<std::pair<const GradientWork*, std::unique_ptr<Sequence>>> backward;
  };
  std::vector<Repeated> repeated_;
  bool repeats_ = false;
  bool draws_ = false;  // has dropout
  Buffer<StepNumbers> numbers_;
  // What StepFirstWeight works on; no rows after it.
  Batch last_batch_;
  const float* last_dy_ = nullptr;
  Buffer<float> first_dy_;  // of all pieces, where there may be several
  // What training keeps of each stage's output; empty where it overwrites its input.
  std::vector<Buffer<float>> outputs_;
  // stage i reads values_[i] and writes values_[i + 1]; values_[0] is the batch.
  std::vector<float*> values_;
  // Activations in evaluation, their gradients in training.
  Buffer<float> flow_[2];
  Buffer<Bf16> dy_bf16_;
  Buffer<float> constants_;
  // By turns, as those of a step are read when the next one is at work.
  Buffer<LossSums> sums_;
  HostView<LossSums> sums_view_;
  int sums_place_ = 0;
  // Of a front: the step that was begun and not finished, and its end of the forward pass while none has
  // waited for it.
  std::optional<StepForm> front_;
  std::optional<Backend::Moment> front_known_;
  HostView<float> activations_view_;
  HostView<float> gradient_view_;  // of flow_[0]
  // Of a back.
  Buffer<float> input_gradient_;
  HostView<float> input_gradient_view_;
  int64_t input_gradient_rows_ = 0;
  const float* first_layer_dy_ = nullptr;
  struct LeftForFinish {
    Batch batch;
    GradientWork* work = nullptr;
  };
  std::optional<LeftForFinish> left_;
  Buffer<float> added_;  // one stage's gradients, on their way to the others
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_H_

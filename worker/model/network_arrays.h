// The parameters of a network and their gradients.
#ifndef TESSERA_WORKER_MODEL_NETWORK_ARRAYS_H_
#define TESSERA_WORKER_MODEL_NETWORK_ARRAYS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/host_view.h"
#include "kernels/memory.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"

namespace tessera {

// Owns one array of all parameters and, of a network that trains, one of all gradients, in ModelShape's order. The
// exchange reads and writes them in place, where the host can address the device's memory. Elsewhere there are copies,
// which the Send and Fetch functions bring up to date.
//
// Threading: one thread at a time, the backend's.
class NetworkArrays {
 public:
  // All are zero. `plan` and `memory` outlive the arrays. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<NetworkArrays>> Create(const NetworkPlan& plan,
                                                               const NetworkOptions& options,
                                                               Memory& memory);

  // Row-major values of parameter i of the plan's shape, as the host sees them. The views live as long as the
  // arrays. Between a network's calls the caller may write parameters; after SendParameters the next call sees
  // them.
  absl::Span<float> parameter(int i);
  absl::Span<const float> gradient(int i) const;
  // All of them with what pads each to a cache line, which stays zero. With steps_first_weight the
  // gradients begin with the second parameter's, and gradient(0) is empty.
  absl::Span<float> parameters();
  absl::Span<const float> gradients() const;

  // The device's addresses of the same, for the backend's kernels.
  absl::Span<float> device_parameter(int i) const;
  absl::Span<const float> device_gradient(int i) const;
  float* device_parameters() const { return parameters_.data(); }
  const float* device_gradients() const { return gradients_.data(); }
  // Where the gradient of parameter i is written; null: there is none.
  float* GradientAt(int i) const;

  // Queued: what the host wrote goes to the device, or what kernels wrote comes to the host, where it
  // is there after Backend::Finish. Of all parameters, or of one.
  void SendParameters() { parameters_view_.Send(); }
  void FetchParameters() { parameters_view_.Fetch(); }
  void SendParameter(int i);
  void FetchParameter(int i);
  // Queued: gradients come to the host, where they have a copy there. Each comes by itself in the backward pass, but
  // where Batch::more held it back.
  void FetchGradients();
  void FetchGradient(int i);
  // Whether the host reads gradients, in place or as a copy.
  bool shows_gradients() const { return gradients_view_.size() > 0; }

  // Writes the values that the servers begin the job with, and sends them.
  void SetInitialValues(uint64_t seed);

 private:
  explicit NetworkArrays(const NetworkPlan& plan) : plan_(plan) {}
  int64_t size(int i) const { return plan_.shape.parameters[i].size(); }

  const NetworkPlan& plan_;
  Buffer<float> parameters_;
  HostView<float> parameters_view_;
  // The gradients of the parameters from the first one that has any.
  Buffer<float> gradients_;
  int64_t gradients_begin_ = 0;
  HostView<float> gradients_view_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_ARRAYS_H_

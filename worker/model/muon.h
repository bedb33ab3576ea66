// The steps of matrices by Muon (Jordan et al. 2024), in f32:
//   m = momentum * m + g;   u = g + momentum * m;   X = u / (|u| + 1e-7)
//   iterations times:  A = X X^T;   X = 3.4445 X + (-4.7750 A + 2.0315 A A) X
//   w -= eta * weight_decay * w;   w -= eta * sqrt(max(1, rows / columns)) * X
// The quintic of Newton and Schulz brings the singular values of X near 1, between 0.7 and 1.2. A matrix with more rows
// than columns is worked on turned round, so that A is the smaller of the two products.
#ifndef TESSERA_WORKER_MODEL_MUON_H_
#define TESSERA_WORKER_MODEL_MUON_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/plan.h"

namespace tessera {

// Owns the room in which matrices are made orthogonal, one after the other.
//
// Threading: the backend's thread.
class Muon {
 public:
  // Matrices are the weights of the plan's products: linear layers and convolutions, a convolution's as [channels,
  // values of a window]. `backend` outlives it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<Muon>> Create(const v1::Muon& keys, const NetworkPlan& plan,
                                                      Backend& backend);

  // Returns the bytes of the room in which matrices are worked on.
  static int64_t MemoryNeeded(const NetworkPlan& plan);

  // Whether parameter i is a matrix, which Step takes.
  bool takes(int i) const { return takes_[i]; }
  // Queued: moves `weight` and `momentum` by `gradient`, which becomes something else. All are parameter i's; `rate` is
  // what the schedule multiplies the learning rate by.
  void Step(int i, float rate, float* gradient, float* momentum, float* weight);

 private:
  Muon(const v1::Muon& keys, const NetworkPlan& plan, Backend& backend);

  // Returns where the result lies: the matrix itself, or a place of the room.
  float* Orthogonalize(const MatrixShape& shape, float* matrix);

  const v1::Muon keys_;
  Backend& backend_;
  std::vector<MatrixShape> shapes_;  // by parameter
  std::vector<bool> takes_;
  Buffer<float> first_, second_;    // as large as the largest matrix
  Buffer<float> product_, square_;  // A, and A A
  Buffer<float> factor_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MUON_H_

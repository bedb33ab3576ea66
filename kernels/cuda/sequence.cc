#include "kernels/cuda/sequence.h"

namespace tessera {

void CudaSequence::Forget() {
  if (graph_ != cuda::Device::kNoGraph) device_.Drop(graph_);
  graph_ = cuda::Device::kNoGraph;
}

void CudaSequence::Run(absl::FunctionRef<void()> queue) {
  // Addresses are part of a record. When the scratch has moved, the work runs unrecorded once and is recorded anew.
  const bool is_known = prepared_ && scratch_moves_ == scratch_.moves();
  if (is_known && graph_ != cuda::Device::kNoGraph) return device_.Replay(graph_);
  Forget();
  // The first run allocates scratch, which a record may not do.
  if (!is_known || refused_) {
    queue();
    prepared_ = true;
    scratch_moves_ = scratch_.moves();
    return;
  }
  if (device_.BeginRecording()) {
    // The copy stream joins the record here and returns to the compute stream below: a capture must end with all of
    // its streams joined.
    memory_.CopiesFollowKernels();
    queue();
    memory_.KernelsFollowCopies();
    graph_ = device_.EndRecording();
  }
  // A record that failed is not tried again; the sequence is queued kernel by kernel from then on.
  refused_ = graph_ == cuda::Device::kNoGraph;
  ++(refused_ ? shortcuts_.records_refused : shortcuts_.records);
  if (refused_) return queue();
  device_.Replay(graph_);
}

}  // namespace tessera

#include "worker/model/step_sequences.h"

namespace tessera {
namespace {

// Where batches and their sums lie: the places of BatchStaging, each for the first, the inner and the last
// pieces of minibatches of two sizes, or batches that add up, with either place of sums; and first ones may
// round weights.
constexpr size_t kRepeatedMax = 48;

// Whether the kernels for one are those for the other. A sequence repeats kernels with their arguments: addresses,
// numbers of rows, and whether they add or overwrite.
bool SameKernels(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.inputs == b.inputs && a.labels == b.labels &&
         a.targets == b.targets && a.whole_rows() == b.whole_rows() &&
         a.is_first() == b.is_first() && a.is_last() == b.is_last() && a.adds == b.adds &&
         a.more == b.more && a.holds_gradients == b.holds_gradients;
}

}  // namespace

StepSequences::Repeated& StepSequences::RepeatedOn(const StepForm& form) {
  for (Repeated& each : repeated_) {
    if (each.form.sums_place == form.sums_place && each.form.rounds == form.rounds &&
        SameKernels(each.form.batch, form.batch)) {
      return each;
    }
  }
  // All are dropped at once, which happens in jobs of many sizes of batches. Those still in use are soon back.
  if (repeated_.size() == kRepeatedMax) repeated_.clear();
  repeated_.push_back({form, backend_.MakeSequence(), {}});
  return repeated_.back();
}

void StepSequences::Forward(const StepForm& form, absl::FunctionRef<void()> queue) {
  if (!repeats_) return queue();
  RepeatedOn(form).forward->Run(queue);
}

void StepSequences::Backward(const StepForm& form, const GradientWork* work,
                             absl::FunctionRef<void()> queue) {
  if (!repeats_) return queue();
  Repeated& repeated = RepeatedOn(form);
  // Kernels that follow the gradients are part of the sequence, and belong to one work.
  for (auto& [of, sequence] : repeated.backward) {
    if (of == work) return sequence->Run(queue);
  }
  repeated.backward.emplace_back(work, backend_.MakeSequence());
  repeated.backward.back().second->Run(queue);
}

}  // namespace tessera

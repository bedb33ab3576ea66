#include "worker/model/calibration.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/model/network_memory.h"

namespace tessera {

Calibration::Calibration(const NetworkPlan& plan, const NetworkOptions& options,
                         NetworkInput& input, NetworkStages& stages, float* constants,
                         Backend& backend)
    : plan_(plan),
      order_(stages.buffers().calibration),
      batch_max_(options.batch_max),
      reads_sparse_(options.sparse_input),
      store_bytes_(options.calibration_store_bytes),
      input_(input),
      stages_(stages),
      constants_(constants),
      backend_(backend),
      activations_(plan.stages, stages.AddressesOf(order_.outputs)) {
  int64_t begin = 0;
  for (const StagePlan& stage : plan.stages) {
    constants_begin_.push_back(begin);
    begin += stage.constants();
  }
}

// A stage has three sums for each two constants, and constants of all stages lie one behind the other.
double* Calibration::SumsOf(int stage) const {
  return sums_.data() + constants_begin_[stage] / 2 * 3;
}

absl::Status Calibration::MakeRoom(int64_t rows) {
  Memory& memory = backend_.memory();
  TESSERA_ASSIGN_OR_RETURN(sums_, Buffer<double>::Create(memory, CalibrationSums(plan_)));
  const NetworkBuffers& buffers = stages_.buffers();
  const CalibrationRoom room = CalibrationRoomOf(buffers, batch_max_, rows, store_bytes_);
  // No pages: one piece, whose values stay in the buffers from pass to pass, or a model with nothing to keep.
  if (room.page_floats == 0) return absl::OkStatus();
  store_.emplace(room.page_floats, (rows + batch_max_ - 1) / batch_max_, &memory);
  TESSERA_ASSIGN_OR_RETURN(room_, Buffer<float>::Create(memory, room.more_floats));
  store_->AddRoom({room_.data(), room_.size()});
  // What calibration leaves of the buffers serves as pages, too.
  const int64_t used = order_.places.floats;
  store_->AddRoom({stages_.memory_at(used), batch_max_ * (buffers.floats - used)});
  return absl::OkStatus();
}

std::vector<ActivationStore::Values> Calibration::KeptOf(int pass, int64_t rows) const {
  std::vector<ActivationStore::Values> values;
  for (const KeptValue& each : order_.passes[pass].kept) {
    values.push_back({stages_.buffer(each.buffer), rows * each.width});
  }
  return values;
}

void Calibration::Compute(int pass, const Batch& piece) {
  for (const int i : order_.passes[pass].stages) {
    // Its output is its input (PlanForward gives them one buffer).
    if (plan_.stages[i].is_off_in_evaluation()) continue;
    float* const y = activations_.output(i);
    if (i == 0 && reads_sparse_) {
      stages_.sparse_first()->Forward(piece.rows, piece.sparse, y);
      continue;
    }
    stages_.stage(i).Evaluate(piece.rows, activations_.inputs(i, piece.inputs),
                              constants_ + constants_begin_[i], y);
  }
}

void Calibration::AddToSums(int pass, const Batch& piece, bool is_first) {
  for (const int i : order_.passes[pass].norms) {
    const Image& image = plan_.stages[i].map.from;
    const UnitColumns columns{{piece.rows * image.positions(), image.channels}, 0};
    stages_.stage(i).AddToSums(columns, is_first, activations_.inputs(i, piece.inputs)[0],
                               SumsOf(i));
  }
}

void Calibration::FindConstants(int pass, int64_t rows) {
  for (const int i : order_.passes[pass].norms) {
    const Image& image = plan_.stages[i].map.from;
    const UnitColumns columns{{rows * image.positions(), image.channels}, 0};
    stages_.stage(i).FindConstants(columns, SumsOf(i), constants_ + constants_begin_[i]);
  }
}

absl::Status Calibration::RunPiece(int pass, int64_t begin, int64_t rows, ExampleSource* source) {
  const int64_t index = begin / batch_max_;
  const int kept = store_.has_value() ? store_->pass(index) : -1;
  // What was computed last lies in the buffers (a sample of one piece) or in the store.
  const int first = std::max(resident_, kept) + 1;
  if (kept >= 0) store_->Get(index, KeptOf(kept, rows));
  // Reading rows may mean decoding pictures: a pass that finds all that it wants in the store leaves them alone.
  bool reads_input = false;
  for (int each = first; each <= pass; ++each) {
    reads_input = reads_input || order_.passes[each].reads_input;
  }
  Batch piece;
  if (reads_input) {
    piece = source->Inputs(begin, rows);
    TESSERA_RETURN_IF_ERROR(source->status());
    TESSERA_ASSIGN_OR_RETURN(piece, input_.TakeInputs(piece));
  }
  piece.rows = rows;
  for (int each = first; each <= pass; ++each) Compute(each, piece);
  // The first piece begins the sums, and chooses the pivot that distances are measured from.
  AddToSums(pass, piece, begin == 0);
  const std::vector<ActivationStore::Values> values = KeptOf(pass, rows);
  // Where nothing is kept the next pass begins with the rows.
  if (store_.has_value() && !values.empty()) store_->Put(index, pass, values);
  // The next rows may come where these lie.
  return reads_input ? backend_.Finish() : absl::OkStatus();
}

absl::Status Calibration::Run(ExampleSource* source) {
  const int64_t rows = source->count();
  TESSERA_RETURN_IF_ERROR(MakeRoom(rows));
  for (int pass = 0; pass < static_cast<int>(order_.passes.size()); ++pass) {
    for (int64_t begin = 0; begin < rows; begin += batch_max_) {
      TESSERA_RETURN_IF_ERROR(RunPiece(pass, begin, std::min(batch_max_, rows - begin), source));
    }
    FindConstants(pass, rows);
    // A sample of one piece goes on from the buffers in the next pass, as no other piece overwrites them.
    if (rows <= batch_max_) resident_ = pass;
  }
  return backend_.Finish();
}

}  // namespace tessera

// A network on rows that it does not learn from.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/model_loss.h"
#include "worker/model/network.h"

namespace tessera {
namespace {

// Rows that one product takes.
struct Chunk {
  const float* values;
  int64_t rows;
};

void AppendChunks(const float* values, int64_t rows, int64_t columns, int64_t rows_max,
                  std::vector<Chunk>* chunks) {
  for (int64_t row = 0; row < rows; row += rows_max) {
    chunks->push_back({values + row * columns, std::min(rows_max, rows - row)});
  }
}

}  // namespace

absl::StatusOr<Scores> Network::Score(const Batch& batch, absl::Span<const float> constants) {
  TESSERA_CHECK(begun_.empty());
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  TESSERA_RETURN_IF_ERROR(Check(batch));
  if (static_cast<int64_t>(constants.size()) != plan_.constants) {
    return absl::InvalidArgumentError(
        absl::StrCat("score: constants are ", constants.size(), " values, want ", plan_.constants));
  }
  DropNext();
  TESSERA_ASSIGN_OR_RETURN(const Batch staged,
                           staging_.Stage(batch, shape().inputs(), shape().outputs()));
  backend_.memory().CopyIn(constants.data(), constants_.bytes(), constants_.data());
  const float* x = staged.inputs;
  const float* own = constants_.data();
  for (size_t i = 0; i < stages_.size(); ++i) {
    // The batch itself is never written.
    const StagePlan& plan = plan_.stages[i];
    if (plan.is_off_in_evaluation()) continue;
    const bool in_place = x != staged.inputs && plan.is_elementwise();
    float* y = in_place ? const_cast<float*>(x) : flow_[x == flow_[0].data() ? 1 : 0].data();
    if (stages_[i] == nullptr) {
      sparse_first_->Forward(staged.rows, staged.sparse, y);
    } else {
      stages_[i]->Evaluate(staged.rows, {&x, 1}, own, y);
    }
    own += plan.constants();
    x = y;
  }
  ComputeLoss(model_, staged, shape().outputs(), x, nullptr, sums_.data(), backend_);
  sums_view_.Fetch(0, 1);
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return ScoresOf(*sums_view_.data(), batch.rows);
}

// The first layer's outputs for all rows of the sample, in pieces of batch_max.
void Network::ForwardSparse(absl::Span<const Batch> sample, float* y) {
  for (const Batch& batch : sample) {
    for (int64_t row = 0; row < batch.rows; row += options_.batch_max) {
      const int64_t rows = std::min(options_.batch_max, batch.rows - row);
      SparseRows x = batch.sparse;
      x.begin += row;
      sparse_first_->Forward(rows, x, y);
      y += rows * plan_.stages[0].outputs;
    }
  }
}

absl::StatusOr<std::vector<float>> Network::Calibrate(absl::Span<const Batch> sample) {
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  if (plan_.constants == 0) return std::vector<float>();
  std::vector<Chunk> chunks;
  int64_t rows = 0;
  for (const Batch& batch : sample) {
    if (batch.rows > 0) TESSERA_RETURN_IF_ERROR(CheckInputs(batch));
    if (!options_.sparse_input) {
      AppendChunks(batch.inputs, batch.rows, shape().inputs(), options_.batch_max, &chunks);
    }
    rows += batch.rows;
  }
  if (rows == 0) {
    return absl::InvalidArgumentError("calibration: the sample is empty, want at least one row");
  }

  Memory& memory = backend_.memory();
  // A stage that writes elsewhere reads the sample where it lies, if the device can.
  const bool reads_in_place = !plan_.stages.front().is_elementwise() && memory.host_addressable();
  const bool copies_inputs = !reads_in_place && !options_.sparse_input;
  const CalibrationWidths widths = CalibrationWidthsOf(plan_, copies_inputs, options_.sparse_input);
  TESSERA_ASSIGN_OR_RETURN(Buffer<float> here, Buffer<float>::Create(memory, rows * widths.first));
  TESSERA_ASSIGN_OR_RETURN(Buffer<float> there,
                           Buffer<float>::Create(memory, rows * widths.second));
  if (copies_inputs) {
    float* to = here.data();
    for (const Chunk& chunk : chunks) {
      memory.CopyIn(chunk.values,
                    chunk.rows * shape().inputs() * static_cast<int64_t>(sizeof(float)), to);
      to += chunk.rows * shape().inputs();
    }
    chunks.clear();
    AppendChunks(here.data(), rows, shape().inputs(), options_.batch_max, &chunks);
  }
  if (options_.sparse_input) {
    ForwardSparse(sample, here.data());
    chunks.clear();
    AppendChunks(here.data(), rows, plan_.stages[0].outputs, options_.batch_max, &chunks);
  }
  int64_t done = 0;
  for (size_t i = options_.sparse_input ? 1 : 0; i < stages_.size() && done < plan_.constants;
       ++i) {
    const StagePlan& plan = plan_.stages[i];
    if (!plan.is_elementwise()) {
      float* to = there.data();
      for (const Chunk& chunk : chunks) {
        stages_[i]->Evaluate(chunk.rows, {&chunk.values, 1}, nullptr, to);
        to += chunk.rows * plan.outputs;
      }
      std::swap(here, there);
      chunks.clear();
      AppendChunks(here.data(), rows, plan.outputs, options_.batch_max, &chunks);
      continue;
    }
    if (plan.is_off_in_evaluation()) continue;
    float* const constants = constants_.data() + done;
    const Image& image = plan.map.from;
    const UnitColumns columns{{rows * image.positions(), image.channels}, 0};
    stages_[i]->Calibrate(columns, here.data(), constants);
    stages_[i]->EvaluateColumns(columns, here.data(), constants, here.data());
    done += plan.constants();
  }
  std::vector<float> constants(plan_.constants);
  memory.CopyOut(constants_.data(), constants_.bytes(), constants.data());
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return constants;
}

}  // namespace tessera

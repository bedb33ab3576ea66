#include "worker/replica/batch_rows.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/method/train_rows.h"
#include "kernels/sparse_linear.h"

namespace tessera {
namespace {

// Evaluation goes through the rows in batches of at least this many, as it has no minibatch to respect, or of so many
// places of sequences, unless the job says that memory is too small for a minibatch.
constexpr int64_t kEvaluationBatchMin = 128;
// For images the least batch of an evaluation is as many rows as have this many values in all: large images keep a
// machine busy without more, and their activations would take gigabytes.
constexpr int64_t kEvaluationImageValues = int64_t{1} << 20;

int64_t EvaluationRowsMin(const v1::Model& model) {
  if (model.has_tokens()) {
    // A row of tokens has a prediction in each of its places, so that as many rows are fewer.
    return std::max<int64_t>(1, kEvaluationBatchMin / model.tokens().context());
  }
  if (model.input_size() != 3) return kEvaluationBatchMin;
  int64_t values = 1;
  for (const int64_t extent : model.input()) values *= extent;
  return std::min(kEvaluationBatchMin, std::max<int64_t>(1, kEvaluationImageValues / values));
}

int ThreadsOf(const v1::Job& job) {
  return std::max<int>(1, static_cast<int>(job.cluster().threads()));
}

// The bytes of `rows` rows, and of what the network needs to read them.
int64_t InputBytes(const v1::Job& job, const ModelShape& shape, const InputRows& input,
                   int64_t rows) {
  if (!input.sparse) return rows * shape.inputs() * static_cast<int64_t>(sizeof(float));
  // A minibatch has all its rows here, also where it is computed in pieces.
  const int64_t minibatch = MinibatchRowsMax(job);
  rows = std::max(rows, minibatch);
  const int64_t entries = rows * input.entries_max;
  const int threads = ThreadsOf(job);
  const int64_t batch = std::max(BatchRowsMax(job), minibatch);
  // Columns of a gradient that adds up in pieces, and room to merge them.
  const int64_t touched =
      RowsInPieces(job) > 0
          ? 2 * 4 * std::min<int64_t>(shape.inputs(), minibatch * input.entries_max)
          : 0;
  return touched + (rows + 1) * 8 + entries * 8 +
         SparseScratchBytes(shape.inputs(), batch, batch * input.entries_max, threads);
}

// A buffer of at least so many values.
template <typename T>
T* Own(size_t count, std::vector<T>* buffer) {
  if (buffer->size() < count) buffer->resize(count);
  return buffer->data();
}

}  // namespace

InputRows InputRowsOf(const v1::Model& model, const Datasets& data) {
  InputRows input;
  input.sparse = data.train.sparse() && ReadsSparse(model);
  input.entries_max = std::max(data.train.row_entries_max(), data.test.row_entries_max());
  return input;
}

int64_t PieceRows(const v1::Job& job) {
  const int64_t wanted = job.train().micro_batch();
  return wanted > 0 ? std::min(wanted, job.train().batch_size()) : job.train().batch_size();
}

int64_t RowsInPieces(const v1::Job& job) {
  const int64_t most = MinibatchRowsMax(job);
  return PieceRows(job) < most ? most : 0;
}

int64_t BatchRowsMax(const v1::Job& job) {
  const int64_t piece = PieceRows(job);
  // A job that computes in pieces says that memory is short, for evaluations too.
  return piece < job.train().batch_size() ? piece : std::max(piece, EvaluationRowsMin(job.model()));
}

BatchRows::BatchRows(const v1::Job& job, const InputRows& input)
    : piece_rows_(static_cast<size_t>(PieceRows(job))),
      has_even_pieces_(DealsBySpeed(job)),
      rows_max_(BatchRowsMax(job)),
      sparse_(input.sparse),
      threads_(ThreadsOf(job)) {}

int64_t BatchRows::MemoryNeeded(const v1::Job& job, const ModelShape& shape,
                                const InputRows& input) {
  const int64_t batch = BatchRowsMax(job);
  // Each place of a row of tokens has a label, and none has targets.
  const int64_t kinds =
      job.model().has_tokens() ? job.model().tokens().context() : shape.outputs() + 1;
  return InputBytes(job, shape, input, batch) + batch * kinds * static_cast<int64_t>(sizeof(float));
}

void BatchRows::PlaceInputs(const Dataset& data, size_t rows, const BatchPlace& place,
                            BatchView* view, Batch* batch) {
  batch->rows = static_cast<int64_t>(rows);
  if (sparse_) {
    view->sparse = &sparse_inputs_;
  } else {
    // Where the network has no place for the batch, it is written here, and copied or read from here.
    view->features = place.inputs != nullptr ? place.inputs : Own(rows * data.inputs(), &inputs_);
    batch->inputs = view->features;
  }
}

void BatchRows::PlaceKinds(const Dataset& data, size_t rows, const BatchPlace& place,
                           BatchView* view, Batch* batch) {
  if (data.has_classes()) {
    view->classes = place.labels != nullptr ? place.labels : Own(rows * data.places(), &labels_);
    batch->labels = view->classes;
  } else {
    view->targets =
        place.targets != nullptr ? place.targets : Own(rows * data.outputs(), &targets_);
    batch->targets = view->targets;
  }
}

void BatchRows::FillPlaces(const Dataset& data, absl::Span<const uint32_t> rows,
                           const BatchView& view, std::optional<uint64_t> epoch, Batch* batch) {
  data.FillBatch(rows, view, threads_, epoch);
  // Behind the fill, as the rows' buffers may have moved while they grew.
  if (view.sparse == nullptr) return;
  batch->sparse = {sparse_inputs_.begin.data(), sparse_inputs_.column.data(),
                   sparse_inputs_.value.data()};
}

Batch BatchRows::FillInputs(const Dataset& data, absl::Span<const uint32_t> rows,
                            const BatchPlace& place, std::optional<uint64_t> epoch) {
  Batch batch;
  BatchView view;
  PlaceInputs(data, rows.size(), place, &view, &batch);
  FillPlaces(data, rows, view, epoch, &batch);
  return batch;
}

Batch BatchRows::Fill(const Dataset& data, absl::Span<const uint32_t> rows, const BatchPlace& place,
                      std::optional<uint64_t> epoch) {
  Batch batch;
  BatchView view;
  PlaceInputs(data, rows.size(), place, &view, &batch);
  PlaceKinds(data, rows.size(), place, &view, &batch);
  FillPlaces(data, rows, view, epoch, &batch);
  return batch;
}

size_t BatchRows::PieceOf(size_t minibatch, size_t first) const {
  // The last one has what is left.
  if (!has_even_pieces_) return std::min(piece_rows_, minibatch - first);
  // Where minibatches have any size a last piece of one row would be too few for a norm: piece i begins with row
  // i minibatch / pieces.
  const size_t pieces = (minibatch + piece_rows_ - 1) / piece_rows_;
  const size_t index = (first * pieces + minibatch - 1) / minibatch;
  return (index + 1) * minibatch / pieces - first;
}

Batch BatchRows::FillPiece(const Dataset& data, absl::Span<const uint32_t> minibatch, size_t first,
                           uint64_t epoch, const BatchPlace& place) {
  const absl::Span<const uint32_t> rows =
      minibatch.subspan(first, PieceOf(minibatch.size(), first));
  Batch batch;
  if (!sparse_) {
    batch = Fill(data, rows, place, epoch);
  } else {
    // Sparse rows of a minibatch lie in one piece, as the step of the first weight wants them: the first piece reads
    // all.
    if (first == 0) FillInputs(data, minibatch);
    batch.rows = rows.size();
    batch.sparse = {sparse_inputs_.begin.data() + first, sparse_inputs_.column.data(),
                    sparse_inputs_.value.data()};
    BatchView view;
    PlaceKinds(data, rows.size(), place, &view, &batch);
    FillPlaces(data, rows, view, epoch, &batch);
  }
  batch.first_row = static_cast<int64_t>(first);
  batch.minibatch_rows = static_cast<int64_t>(minibatch.size());
  return batch;
}

absl::StatusOr<std::vector<float>> BatchRows::Calibrate(Network* network, const Dataset& data,
                                                        absl::Span<const uint32_t> rows) {
  if (network->plan().constants == 0) return std::vector<float>();
  RowExamples examples(this, &data, rows);
  return network->evaluation().Calibrate(&examples);
}

absl::StatusOr<Scores> BatchRows::Score(Network* network, const Dataset& data,
                                        absl::Span<const uint32_t> rows,
                                        absl::Span<const float> constants) {
  Scores sums;
  for (size_t begin = 0; begin < rows.size(); begin += rows_max_) {
    const absl::Span<const uint32_t> part = rows.subspan(begin, rows_max_);
    // The next batch is read ahead while this one is scored.
    data.Expect(rows.subspan(begin, 2 * rows_max_), std::nullopt);
    const Batch batch = Fill(data, part, network->input().Room(part.size(), data.has_classes()));
    // Only now is it known whether all rows could be read.
    TESSERA_RETURN_IF_ERROR(data.status());
    TESSERA_ASSIGN_OR_RETURN(const Scores scores, network->evaluation().Score(batch, constants));
    sums += scores;
  }
  return sums;
}

}  // namespace tessera

// Rows of data sets, made into the batches that a network reads.
#ifndef TESSERA_WORKER_REPLICA_BATCH_ROWS_H_
#define TESSERA_WORKER_REPLICA_BATCH_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/layout/parameters.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/model/batch.h"
#include "worker/model/example_source.h"
#include "worker/model/network.h"

namespace tessera {

// How the rows of the job's data sets are read.
struct InputRows {
  // Rows are CSR: nothing of the size of a batch times model.input is held.
  bool sparse = false;
  // Entries of the row that has most.
  int64_t entries_max = 0;
};

// Sparse where the training rows should be (Dataset::sparse) and the first layer is linear.
InputRows InputRowsOf(const v1::Model& model, const Datasets& data);

// Rows of a minibatch that are computed at once, at most: train.micro_batch, or train.batch_size. A minibatch that is
// larger, as those of fast workers may be, is computed in pieces, so that memory does not grow with it.
int64_t PieceRows(const v1::Job& job);

// Rows of the largest minibatch that is computed in pieces; 0: each is computed at once.
int64_t RowsInPieces(const v1::Job& job);

// Rows that a network for training and evaluation takes at once.
int64_t BatchRowsMax(const v1::Job& job);

// Owns the buffers, which grow at first use. One thread.
class BatchRows {
 public:
  BatchRows(const v1::Job& job, const InputRows& input);

  // Bytes of the buffers for batches, and of the scratch of products with them.
  static int64_t MemoryNeeded(const v1::Job& job, const ModelShape& shape, const InputRows& input);

  // `rows` of `data`, and what they are, in `place` or buffers of its own. The batch lives until the next
  // call of a method, or as long as its place.
  // With `epoch` rows are augmented, as they train.
  Batch Fill(const Dataset& data, absl::Span<const uint32_t> rows, const BatchPlace& place = {},
             std::optional<uint64_t> epoch = std::nullopt);
  // `rows` of `data` without labels or targets, as Fill.
  Batch FillInputs(const Dataset& data, absl::Span<const uint32_t> rows,
                   const BatchPlace& place = {}, std::optional<uint64_t> epoch = std::nullopt);
  // The piece of `minibatch` that begins with its row `first`. Pieces are asked for in their order: sparse inputs are
  // those of the whole minibatch, made with the first.
  Batch FillPiece(const Dataset& data, absl::Span<const uint32_t> minibatch, size_t first,
                  uint64_t epoch, const BatchPlace& place = {});

  // NetworkEvaluation's Calibrate and Score over `rows` of `data`.
  absl::StatusOr<std::vector<float>> Calibrate(Network* network, const Dataset& data,
                                               absl::Span<const uint32_t> rows);
  absl::StatusOr<Scores> Score(Network* network, const Dataset& data,
                               absl::Span<const uint32_t> rows, absl::Span<const float> constants);

  // Rows of the piece of a minibatch that begins with its row `first`.
  size_t PieceOf(size_t minibatch, size_t first) const;

 private:
  // Where the inputs of so many rows go, and where their labels or targets do.
  void PlaceInputs(const Dataset& data, size_t rows, const BatchPlace& place, BatchView* view,
                   Batch* batch);
  void PlaceKinds(const Dataset& data, size_t rows, const BatchPlace& place, BatchView* view,
                  Batch* batch);
  // Writes what `view` has places for.
  void FillPlaces(const Dataset& data, absl::Span<const uint32_t> rows, const BatchView& view,
                  std::optional<uint64_t> epoch, Batch* batch);

  const size_t piece_rows_;
  const bool has_even_pieces_;
  const size_t rows_max_;
  const bool sparse_;
  const int threads_;
  std::vector<float> inputs_;  // where rows are dense
  SparseBatch sparse_inputs_;
  std::vector<int32_t> labels_;
  std::vector<float> targets_;
};

// `rows` of a data set for a network that asks for them by and by. All outlive it.
class RowExamples final : public ExampleSource {
 public:
  RowExamples(BatchRows* batches, const Dataset* data, absl::Span<const uint32_t> rows)
      : batches_(*batches), data_(*data), rows_(rows) {}
  int64_t count() const override { return static_cast<int64_t>(rows_.size()); }
  Batch Inputs(int64_t begin, int64_t count) override {
    data_.Expect(rows_.subspan(begin, count), std::nullopt);
    return batches_.FillInputs(data_, rows_.subspan(begin, count));
  }
  Batch Labelled(int64_t begin, int64_t count) override {
    data_.Expect(rows_.subspan(begin, count), std::nullopt);
    return batches_.Fill(data_, rows_.subspan(begin, count));
  }
  absl::Status status() const override { return data_.status(); }

 private:
  BatchRows& batches_;
  const Dataset& data_;
  const absl::Span<const uint32_t> rows_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_BATCH_ROWS_H_

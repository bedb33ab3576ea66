#include "worker/replica/batch_rows.h"

#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kContext = 3;

v1::Job Job() {
  v1::Job job;
  job.mutable_model()->mutable_tokens()->set_vocabulary(100);
  job.mutable_model()->mutable_tokens()->set_context(kContext);
  job.mutable_train()->set_batch_size(4);
  job.mutable_train()->set_micro_batch(2);
  return job;
}

// Rows that train, of the tokens 0 to 39.
Dataset Counting() {
  TokenRows rows;
  rows.windows = {kContext, /*trains=*/true, /*seed=*/5};
  rows.tokens = TokenValues(100);
  std::vector<uint32_t> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 0);
  rows.tokens.Append(tokens);
  Table table;
  table.rows = rows.windows.RowsOf(40);
  table.features = kContext;
  table.values = std::make_shared<const TokenRows>(std::move(rows));
  table.labels = NextTokens();
  ModelEnds ends;
  ends.tokens = true;
  ends.inputs = ends.places = kContext;
  ends.outputs = 100;
  return Dataset(std::move(table), {}, ends);
}

// Each label is the token behind its input.
void CheckLabels(const Batch& batch, int64_t rows) {
  REQUIRE(batch.rows == rows);
  REQUIRE(batch.targets == nullptr);
  for (int64_t i = 0; i < rows * kContext; ++i) {
    REQUIRE(batch.labels[i] == static_cast<int32_t>(batch.inputs[i]) + 1);
  }
}

TEST_CASE("a batch of tokens has a label for each place, of the window of its epoch",
          "[batch_rows]") {
  const Dataset data = Counting();
  BatchRows rows(Job(), {});
  bool shifted = false;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    const Batch batch = rows.Fill(data, {2, 7, 0, 11}, {}, epoch);
    CheckLabels(batch, 4);
    shifted = shifted || batch.inputs[0] != 2 * kContext;
    const std::vector<float> inputs(batch.inputs + 2 * kContext, batch.inputs + 4 * kContext);
    // A piece of a minibatch is the same rows.
    CheckLabels(rows.FillPiece(data, {2, 7, 0, 11}, 0, epoch), 2);
    const Batch piece = rows.FillPiece(data, {2, 7, 0, 11}, 2, epoch);
    CheckLabels(piece, 2);
    REQUIRE(std::vector<float>(piece.inputs, piece.inputs + 2 * kContext) == inputs);
  }
  CHECK(shifted);
  const Batch evaluated = rows.Fill(data, {2, 7});
  CheckLabels(evaluated, 2);
  CHECK(evaluated.inputs[0] == 2 * kContext);
}

TEST_CASE("a place that the caller gives gets the labels of all places", "[batch_rows]") {
  const Dataset data = Counting();
  BatchRows rows(Job(), {});
  std::vector<float> inputs(2 * kContext);
  std::vector<int32_t> labels(2 * kContext);
  BatchPlace place;
  place.inputs = inputs.data();
  place.labels = labels.data();
  rows.Fill(data, {1, 3}, place);
  CHECK(labels == std::vector<int32_t>{4, 5, 6, 10, 11, 12});
}

TEST_CASE("the buffers of tokens are reckoned with a label for each place and no targets",
          "[batch_rows]") {
  ModelShape shape;
  shape.widths = {kContext, kContext * 100};
  // Evaluations read 2 rows at once, as minibatches are computed in pieces of 2.
  CHECK(BatchRows::MemoryNeeded(Job(), shape, {}) == 2 * (kContext + kContext) * 4);
}

TEST_CASE("a minibatch of any size is computed in pieces that are about equally large",
          "[batch_rows]") {
  v1::Job job = Job();
  job.mutable_data()->set_partition("by_speed");
  const size_t most = GENERATE(3, 8);
  job.mutable_train()->set_batch_size(most);
  job.mutable_train()->set_micro_batch(0);
  const BatchRows rows(job, {});
  for (size_t minibatch = 1; minibatch <= 4 * most; ++minibatch) {
    const size_t pieces = (minibatch + most - 1) / most;
    size_t first = 0, count = 0;
    for (; first < minibatch; ++count) {
      const size_t piece = rows.PieceOf(minibatch, first);
      CAPTURE(most, minibatch, first, piece);
      REQUIRE((piece >= minibatch / pieces && piece <= most));
      first += piece;
    }
    REQUIRE((first == minibatch && count == pieces));
  }
}

}  // namespace
}  // namespace tessera

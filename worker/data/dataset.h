// A worker's training and test set in memory, ready to fill minibatches.
//
// Values stay as compact as their files (u8, f32, sparse), or stay on disk; filling a batch normalises them.
//
//   data files --(table_reader.h)--> Table --> Dataset --FillBatch--> BatchView
//              load_datasets.h goes all this way for a job's training and test set.
#ifndef TESSERA_WORKER_DATA_DATASET_H_
#define TESSERA_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/checkpoint/model_facts.h"
#include "common/layout/parameters.h"
#include "proto/job.pb.h"
#include "worker/data/augmentation.h"
#include "worker/data/normalization.h"
#include "worker/data/stored_rows.h"
#include "worker/data/table.h"

namespace tessera {

// What the model says about its data.
struct ModelEnds {
  // Product of model.input.
  int64_t inputs = 0;
  // Width of the last layer; of models of tokens, that of one place: the vocabulary.
  int64_t outputs = 0;
  // model.loss is sigmoid_cross_entropy, not softmax_cross_entropy.
  bool sigmoid = false;
  // model.input, for formats whose rows have a shape; empty: any of so many values will do.
  std::vector<int64_t> input = {};
  // The only output is to come close to a number (LearnsNumbers).
  bool numbers = false;
  // Labels of a row: one for each place of the context of a model of tokens.
  int64_t places = 1;
  // Rows are tokens, `inputs` of them, and `outputs` is the vocabulary.
  bool tokens = false;
};
// `shape` is the model's.
ModelEnds EndsOf(const v1::Model& model, const ModelShape& shape);

// The rows of a batch as CSR: row b has the entries [begin[b], begin[b + 1]), columns ascending.
struct SparseBatch {
  std::vector<int64_t> begin;
  std::vector<int32_t> column;
  std::vector<float> value;
};

// Where the B rows of a batch go; a null part is not filled. Row-major.
struct BatchView {
  // [B, inputs]
  float* features = nullptr;
  // The features without their zeros, for data sets that can_be_sparse(). Replaced; keeps its capacity.
  SparseBatch* sparse = nullptr;
  // [B]: the class of each row, for softmax. Of tokens [B, places]: for each place, the token that comes next.
  int32_t* classes = nullptr;
  // [B, outputs], for sigmoid: 1 for a row's classes and 0 elsewhere; with one output, the class. For numbers: the
  // row's.
  float* targets = nullptr;
};

// Constant after construction, but for what is read ahead; any number of threads may fill batches at once.
class Dataset {
 public:
  struct Options {
    // How training rows are changed at random before they are trained on.
    Augmentation augmentation = {};
    // Where values stay on disk: so many rows are read ahead, by so many threads.
    int64_t rows_ahead = 0;
    int threads_ahead = 1;
  };

  // `table` holds the classes that TableSpecOf(ends) asks for.
  Dataset(Table table, const Normalization& normalization, const ModelEnds& ends,
          const Options& options);
  Dataset(Table table, const Normalization& normalization, const ModelEnds& ends)
      : Dataset(std::move(table), normalization, ends, Options()) {}
  Dataset(Dataset&&) = default;

  int64_t rows() const { return table_.rows; }
  int64_t inputs() const { return table_.features; }
  int64_t outputs() const { return outputs_; }
  // Labels of a row, where it has classes.
  int64_t places() const { return places_; }
  // Whether rows are tokens.
  bool is_tokens() const { return table_.is_tokens(); }
  // Values are bytes, which are divided by 255; all others are what they are.
  bool is_bytes() const { return table_.is_bytes(); }
  // Every row, or every place of a row, has one class, so BatchView::classes may be filled. Always so under softmax,
  // never where labels are numbers.
  bool has_classes() const {
    return std::holds_alternative<Classes>(table_.labels) || table_.is_tokens();
  }
  // Memory of all of it.
  int64_t bytes() const;
  // XXH3 of rows, values and labels before normalisation: what files with the same content give, wherever they
  // lie. Never 0. Reads all of it, but for pictures, where it is of their names, sizes and labels.
  uint64_t Sum() const;

  // The format stores entries, and normalisation leaves zeros what they are.
  bool can_be_sparse() const;
  // It can, and should: the format is for nothing else (xc), or rows are wide and nearly empty.
  // A property of the values alone, so workers with the same files agree.
  bool sparse() const;
  // Stored entries of the row that has most.
  int64_t row_entries_max() const;

  // Whether values stay on disk.
  bool is_stored() const { return stored_ != nullptr; }
  // These rows will be asked for soon, in this order: reads them ahead, where values stay on disk.
  void Expect(absl::Span<const uint32_t> rows, std::optional<uint64_t> epoch) const;
  // No row that was announced will be asked for.
  void Forget() const;
  // The first failure to read a row from disk, instead of which zeros were given.
  absl::Status status() const;

  // Writes rows[0], rows[1] and so on, for training in this epoch (Augmentation), or as the files have them. No
  // allocation but where `out.sparse` grows. Features are written by up to `threads`. A class is that of the row that
  // was given in this one's place (ValueSource::StandIn), so that features are filled first. Of tokens both are of one
  // window, which is read once where they are asked for together, and differs from epoch to epoch.
  void FillBatch(absl::Span<const uint32_t> rows, const BatchView& out, int threads = 1,
                 std::optional<uint64_t> epoch = std::nullopt) const;

 private:
  using Epoch = std::optional<uint64_t>;

  void FillFeatures(const U8Values& values, absl::Span<const uint32_t> rows, Epoch epoch,
                    float* out) const;
  void FillFeatures(const F32Values& values, absl::Span<const uint32_t> rows, Epoch epoch,
                    float* out) const;
  void FillFeatures(const SparseValues& values, absl::Span<const uint32_t> rows, Epoch epoch,
                    float* out) const;
  void FillFeatures(const StoredValues& values, absl::Span<const uint32_t> rows, Epoch epoch,
                    float* out) const;
  void FillFeatures(const HeldTokens& values, absl::Span<const uint32_t> rows, Epoch epoch,
                    float* out) const;
  // Features and classes of rows of tokens; either may be null.
  void FillTokens(absl::Span<const uint32_t> rows, Epoch epoch, float* features,
                  int32_t* classes) const;
  // Fills one row from its stored values `x`.
  template <typename Value>
  void FillRow(const Value* x, uint32_t row, Epoch epoch, float* out) const;
  uint32_t StandIn(uint32_t row) const;
  void FillSparse(absl::Span<const uint32_t> rows, SparseBatch* out) const;
  void FillTargets(const Classes& classes, absl::Span<const uint32_t> rows, float* out) const;
  void FillTargets(const ClassSets& sets, absl::Span<const uint32_t> rows, float* out) const;
  void FillTargets(const F32Values& numbers, absl::Span<const uint32_t> rows, float* out) const;
  void FillTargets(const NextTokens&, absl::Span<const uint32_t> rows, float* out) const;
  bool uniform() const { return centre_.size() == 1; }
  // Which entry of centre_ and scale_ is feature j's.
  int64_t ConstantOf(int64_t j) const { return run_ == 1 ? j : j / run_; }
  template <typename Value>
  void RescaleRow(const Value* x, float* out) const;

  Table table_;
  int64_t outputs_;
  int64_t places_;
  Augmentation augmentation_;
  // The door to values on disk; null where they are held.
  std::unique_ptr<StoredRows> stored_;
  // An input is (stored value - centre) * scale. Entry k is for the features [k * run_, (k + 1) * run_).
  std::vector<float> centre_;
  std::vector<float> scale_;
  int64_t run_ = 1;
  // What a sparse row's missing entries become; one entry for each feature, of sparse tables only.
  std::vector<float> zeros_;
};

// What a reader must deliver for a model.
TableSpec TableSpecOf(const ModelEnds& ends);

struct Datasets {
  Dataset train;
  Dataset test;
  // How labels were numbered and values normalised. train_sum is not set.
  ModelFacts facts = {};
  // Remarks for whoever starts the job on what is no fault but may surprise (data_notes.h).
  std::vector<std::string> notes = {};
};

// No rows at all: of a job whose workers read rows of their own.
Datasets NoRows();

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_DATASET_H_

// The rows of a data set as its files give them: values of one type, and labels as class indices.
#ifndef TESSERA_WORKER_DATA_TABLE_H_
#define TESSERA_WORKER_DATA_TABLE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/augmentation.h"
#include "worker/data/limits.h"
#include "worker/data/number_array.h"
#include "worker/data/token_values.h"
#include "worker/data/token_windows.h"
#include "worker/data/value_source.h"

namespace tessera {

// Row-major, rows * features.
using U8Values = NumberArray<uint8_t>;
using F32Values = NumberArray<float>;

// Row i has the entries [begin[i], begin[i + 1]), features ascending; all others are 0.
struct SparseValues {
  NumberArray<int64_t> begin = {0};
  NumberArray<uint32_t> feature;
  NumberArray<float> value;
};

// One class for each row.
using Classes = NumberArray<int32_t>;

// Any number of classes for each row: row i has [begin[i], begin[i + 1]), without repetition.
struct ClassSets {
  NumberArray<int64_t> begin = {0};
  NumberArray<int32_t> classes;
};

// Rows that are windows of a sequence of tokens.
struct TokenRows {
  TokenWindows windows;
  TokenValues tokens;
};
using HeldTokens = std::shared_ptr<const TokenRows>;

// The labels of a row of tokens: of each the token behind it, so that there is nothing to hold.
struct NextTokens {};

// Every row has `features` values, all finite; every class is in [0, TableSpec::classes).
struct Table {
  int64_t rows = 0;
  int64_t features = 0;
  // StoredValues of rows of tokens give one value more, the token behind the row (token_files.h).
  std::variant<U8Values, F32Values, SparseValues, StoredValues, HeldTokens> values;
  // F32Values where labels are numbers (TableSpec::numbers): one for each row, all finite.
  std::variant<Classes, ClassSets, F32Values, NextTokens> labels;
  // What a row's values are in the order in which they lie, as [3, 8, 8]; empty where the format does not say.
  std::vector<int64_t> row_sizes;
  // The values are SparseValues, and whoever reads the rows wants to keep them so.
  bool always_sparse = false;
  // What Dataset::Sum is made of in place of values and labels, where reading all values would take too long; 0: it is
  // made of these.
  uint64_t content_sum = 0;

  bool is_bytes() const;
  // Rows are tokens, and each place of a row has a label.
  bool is_tokens() const { return std::holds_alternative<NextTokens>(labels); }
  // Memory of values and labels.
  int64_t bytes() const;
};

// What the model wants of a table; a reader refuses everything else.
struct TableSpec {
  // Product of model.input, in [1, kFeaturesMax].
  int64_t features = 0;
  // model.input, for formats whose rows have a shape; empty: any will do.
  std::vector<int64_t> input;
  // At least 1.
  int64_t classes = 0;
  // A row may have any number of classes, where the format can say so.
  bool class_sets = false;
  // Labels are no classes but one number each, which is read as it is. Only for formats whose DataFormat says
  // number_labels.
  bool numbers = false;
  // The model has one output, for the second class of two.
  bool one_output = false;
  // Rows are those to train on, whose windows of tokens shift from epoch to epoch by what is drawn from `seed`.
  bool trains = false;
  uint64_t seed = 0;
  // Other workers read other files, so neither a class nor whether labels are sets may depend on which
  // occur here.
  bool local_files = false;
  // Limit on Table::bytes().
  int64_t bytes_max = kDatasetBytesMax;
  // Values that take more than this stay on disk, where the format's rows can be read one by one.
  int64_t held_bytes_max = std::numeric_limits<int64_t>::max();
  // How training rows are changed at random: a format whose rows come from something larger draws resized_crop from
  // that.
  Augmentation augmentation = {};
};

// kInvalidArgument where rows of these sizes have as many values as model.input, in another order.
absl::Status CheckRowShape(const std::string& path, absl::Span<const int64_t> row_sizes,
                           const TableSpec& spec);
// kInvalidArgument where the test rows' sizes are those of the training rows in another order: the model itself may
// take either.
absl::Status CheckSameShape(const std::string& path, const Table& test, const Table& train);

// Values of both must be bytes, or of neither: bytes are divided by 255.
absl::Status CheckSameKind(const std::string& path, const Table& test,
                           const std::string& train_path, const Table& train);
// Values must be of the kind that a model was trained on.
absl::Status CheckTrainedKind(const std::string& path, const Table& table, bool trained_on_bytes);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TABLE_H_

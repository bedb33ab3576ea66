// What a data set is: read as a worker reads it, with a model that fits any, before there is a job.
#ifndef TESSERA_DEPLOY_CLI_INIT_DATA_LOOK_H_
#define TESSERA_DEPLOY_CLI_INIT_DATA_LOOK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/cli/init/found_files.h"

namespace tessera {

struct DataLook {
  FoundFiles files;
  // model.input: [features], or [channels, height, width]; of texts empty.
  std::vector<int64_t> input;
  // Classes of rows; 0: labels are numbers that a model comes close to.
  int64_t classes = 0;
  // A row has a set of labels.
  bool has_sets = false;
  int64_t train_rows = 0;
  int64_t test_rows = 0;
  // Values are bytes; `mean` and `stddev` are theirs over the first training rows, after the division by 255.
  bool is_bytes = false;
  double mean = 0;
  double stddev = 1;
  // Values are large, or of different sizes from feature to feature.
  bool wants_normalization = false;
  // Rows are entries, and most of them are 0.
  bool is_sparse = false;
  // data.label_column and data.labels; empty: none.
  std::string label_column;
  std::string cifar_labels;
  // Of texts and tokens: data.tokenizer, which is empty for tokens, the vocabulary, and all tokens of the training set.
  std::string tokenizer;
  int64_t vocabulary = 0;
  int64_t tokens = 0;
  int64_t test_tokens = 0;
};

// Reads the files.
//   kNotFound, kInvalidArgument, kDataLoss, ...  they cannot be read, in the reader's own words
absl::StatusOr<DataLook> LookAtData(const FoundFiles& files);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_INIT_DATA_LOOK_H_

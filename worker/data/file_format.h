// A format of data files: how such a file is told from others, what its rows look like to somebody who has no job yet,
// and how files of it are read.
//
// A format is one source of this folder (npy.cc, csv.cc, ...) that defines its FileFormat, and a row of
// file_formats.cc. What a job file must say beside the format's name is in common/config/data_formats.h.
#ifndef TESSERA_WORKER_DATA_FILE_FORMAT_H_
#define TESSERA_WORKER_DATA_FILE_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/characters.h"
#include "worker/data/csv_columns.h"
#include "worker/data/label_map.h"
#include "worker/data/table.h"

namespace tessera {

class FileHead;

// The paths of one set, and the data section that names them.
struct TableFiles {
  const v1::Data& data;
  std::vector<std::string> features;
  // As many, or none where files carry their labels.
  std::vector<std::string> labels;
};

// What the files of the training set determine for those of the test set, which are read after them.
struct TrainingConventions {
  explicit TrainingConventions(const v1::Data& data) : columns(data.label_column()) {}

  // Which class each label is, for formats that number labels. It may be set beforehand, from a checkpoint.
  std::optional<LabelMap> labels;
  // The tokens of a text, which may be set beforehand, too.
  std::optional<Characters> characters;
  // Where the label stands in a line of a csv file.
  CsvColumns columns;
  // The class folders of pictures.
  std::vector<std::string> class_names;
};

// What files tell of their rows before a job says what they are.
struct RowsLook {
  // model.input: [features], or [channels, height, width]; of texts and tokens empty.
  std::vector<int64_t> input;
  // Classes of rows, where files say how many there are.
  int64_t classes = 0;
  // A row has a set of labels.
  bool has_sets = false;
  // Rows are entries, and most of them are 0.
  bool is_sparse = false;
  // What the format's own key in the data section (DataFormat::own_key) must say for these files, and a sentence on it
  // for whoever reads the job; empty: nothing.
  std::string own_value, own_note;
  // Of texts and tokens: the vocabulary, and all tokens of either set.
  int64_t vocabulary = 0;
  int64_t tokens = 0;
  int64_t test_tokens = 0;
};

struct FileFormat {
  // The value of data.format.
  absl::string_view name;
  // Whether the file that begins so is one of the format. It is asked in the order of FileFormats(), so that it need
  // not know the formats in front. Null: no single file tells.
  absl::StatusOr<bool> (*is)(const FileHead& head);
  // Sets what `train` and `test`, which are files of the format, tell of their rows.
  //   kInvalidArgument, ...  a file cannot be read, in the words of its reader
  absl::Status (*look)(const std::vector<std::string>& train, const std::vector<std::string>& test,
                       RowsLook* look);
  // Reads all files of a set into one table, which has at least one row. ReadTable (table_reader.h) has the status
  // codes, and has checked that as many files are named as the format wants, and that none is empty.
  absl::StatusOr<Table> (*read)(const TableFiles& files, const TableSpec& spec,
                                TrainingConventions* conventions);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_FILE_FORMAT_H_

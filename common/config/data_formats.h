// The formats that data files may have (data.format), and what of a job file depends on the format. Their names are
// those that proto/job.proto allows; a format of which all answers are the defaults below has no line here.
//
// worker/data/file_format.h is the other half of each: how such files are told and read.
#ifndef TESSERA_COMMON_CONFIG_DATA_FORMATS_H_
#define TESSERA_COMMON_CONFIG_DATA_FORMATS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

struct DataFormat {
  // The value of data.format.
  absl::string_view name;
  // Labels lie in files of their own, named by `labels` of data.train and data.test, one for each file of features.
  // Otherwise a file carries its labels.
  bool labels_apart = false;
  // Rows are kept sparse up to the first product, so that nothing before it may change a zero.
  bool stays_sparse = false;
  // Classes are numbered in the order of the labels that the training rows have, whatever integers these are.
  bool numbers_labels = false;
  // The sizes of a row, as [3, 32, 32]; empty where rows of any size are read.
  absl::Span<const int64_t> row_sizes = {};
  // The string field of v1::Data that says more about files of this format, and is refused with any other; empty: none.
  absl::string_view own_key = {};
  // A label may be any number, for models that learn numbers.
  bool number_labels = false;
  // A row is its entries that are not 0.
  bool has_entries = false;
  // Each row can be read by itself, so that rows need not be held in memory.
  bool reads_in_place = false;
  // Files are pictures, named by folders or lists.
  bool is_pictures = false;
  // Files are one sequence of tokens, whose windows are the rows of models of tokens and of no others.
  bool is_tokens = false;
};

// All of them, in the order in which messages name them.
absl::Span<const DataFormat> DataFormats();

// All names, for messages: "idx, csv or npy".
std::string DataFormatNames();
// Null where `name` names no format.
const DataFormat* FindDataFormat(absl::string_view name);
// `name` must name a format: the job reader has refused all others.
const DataFormat& DataFormatOf(absl::string_view name);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_DATA_FORMATS_H_

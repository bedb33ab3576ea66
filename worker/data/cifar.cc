#include "worker/data/cifar.h"

#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/label_range.h"
#include "worker/data/limits.h"
#include "worker/data/record_source.h"

namespace tessera {
namespace {

constexpr int64_t kRowSizes[] = {3, 32, 32};
constexpr int64_t kImageBytes = 3 * 32 * 32;
// An image's bytes and its class.
constexpr int64_t kRowMemoryBytes = kImageBytes + sizeof(int32_t);
// CIFAR-100 has a coarse label and then a fine one.
constexpr int64_t kLabelBytesMax = 2;
// Read past a fault, to know how long the content is.
constexpr size_t kDrainBytes = size_t{64} << 10;

int64_t LabelBytes(CifarLabels labels) { return labels == CifarLabels::kOne ? 1 : 2; }
int64_t LabelAt(CifarLabels labels) { return labels == CifarLabels::kFine ? 1 : 0; }

// Records of the other kind do not end where the content ends, and have a label's byte anywhere.
std::string RecordAdvice(ByteSource& source, CifarLabels labels) {
  std::vector<char> drain(kDrainBytes);
  for (;;) {
    const absl::StatusOr<size_t> got = source.Read(drain.data(), drain.size());
    if (!got.ok()) return "";
    if (*got < drain.size()) break;
  }
  const auto fits = [&](int64_t label_bytes) {
    return source.offset() % (label_bytes + kImageBytes) == 0;
  };
  if (fits(LabelBytes(labels)) || !fits(kLabelBytesMax + 1 - LabelBytes(labels))) return "";
  return labels == CifarLabels::kOne ? "; its records seem to have two label bytes, as CIFAR-100 "
                                       "has them: set data.labels to "
                                       "fine or coarse"
                                     : "; its records seem to have one label byte, as CIFAR-10 has "
                                       "it: leave data.labels out";
}

class CifarReader {
 public:
  // `stays`: the images stay in the files.
  CifarReader(const TableSpec& spec, CifarLabels labels, bool stays)
      : spec_(spec), labels_(labels), stays_(stays) {}

  absl::Status AppendFile(const std::string& path);
  absl::StatusOr<Table> Finish();

 private:
  int64_t record_bytes() const { return LabelBytes(labels_) + kImageBytes; }
  // Memory of one row.
  int64_t row_bytes() const { return stays_ ? kRowMemoryBytes - kImageBytes : kRowMemoryBytes; }
  void Reserve(const ByteSource& source);
  absl::Status WrongLabel(ByteSource& source, int64_t row, int label);

  const TableSpec& spec_;
  const CifarLabels labels_;
  const bool stays_;
  std::vector<RecordSource::File> files_;
  int64_t rows_ = 0;
  U8Values values_;
  Classes classes_;
  LabelRange range_;
};

// What is known beforehand need not be copied later.
void CifarReader::Reserve(const ByteSource& source) {
  if (source.compressed() || stays_) return;
  const int64_t file_rows = source.content_bytes_max() / record_bytes();
  // More than the limit allows is not reserved: reading stops there with a message.
  if (file_rows >= spec_.bytes_max / kRowMemoryBytes - rows_) return;
  values_.reserve(values_.size() + static_cast<size_t>(file_rows * kImageBytes));
}

absl::Status CifarReader::WrongLabel(ByteSource& source, int64_t row, int label) {
  const std::string wrong =
      absl::StrCat(source.path(), ": byte ", source.offset() - record_bytes(), ": label of row ",
                   row, " is ", label, ", want 0 to ", spec_.classes - 1, " (the model's classes)");
  std::string advice;
  if (range_.MayExplain(label, spec_.classes)) {
    uint8_t record[kLabelBytesMax + kImageBytes];
    for (;;) {
      const absl::StatusOr<size_t> got = source.Read(record, static_cast<size_t>(record_bytes()));
      if (!got.ok() || *got < static_cast<size_t>(record_bytes())) break;
      range_.Add(record[LabelAt(labels_)]);
    }
    advice = range_.Advice(spec_.classes);
  }
  const std::string records = RecordAdvice(source, labels_);
  return absl::InvalidArgumentError(absl::StrCat(wrong, records.empty() ? advice : records));
}

absl::Status CifarReader::AppendFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  Reserve(*source);
  for (int64_t row = 0;; ++row) {
    // For messages about this record, as reading it moves the offset.
    const int64_t offset = source->offset();
    uint8_t record[kLabelBytesMax + kImageBytes];
    TESSERA_ASSIGN_OR_RETURN(const size_t got,
                             source->Read(record, static_cast<size_t>(record_bytes())));
    if (got == 0) {
      // RecordSource finds rows by how many there are in each file.
      files_.push_back({path, 0, row});
      return absl::OkStatus();
    }
    if (static_cast<int64_t>(got) < record_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": byte ", offset, ": row ", row,
                                                     " has ", got, " bytes, want ", record_bytes(),
                                                     RecordAdvice(*source, labels_)));
    }
    const int label = record[LabelAt(labels_)];
    range_.Add(label);
    if (label >= spec_.classes) return WrongLabel(*source, row, label);
    ++rows_;
    // Only of compressed files is it not known before that their values are too many (Stays).
    if (!stays_ && rows_ * kImageBytes > spec_.held_bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          path, ": has more than the ", spec_.held_bytes_max,
          " bytes of values that data.memory has room for",
          "; gunzip all files: records of compressed files cannot be read one by one"));
    }
    if (rows_ > kRowsMax || rows_ * row_bytes() > spec_.bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": needs more than ", spec_.bytes_max, " bytes of memory"));
    }
    classes_.push_back(label);
    if (!stays_) values_.append(record + LabelBytes(labels_), kImageBytes);
  }
}

absl::StatusOr<Table> CifarReader::Finish() {
  Table table;
  table.rows = rows_;
  table.features = kImageBytes;
  table.row_sizes.assign(std::begin(kRowSizes), std::end(kRowSizes));
  classes_.shrink_to_fit();
  table.labels = std::move(classes_);
  if (!stays_) {
    values_.shrink_to_fit();
    table.values = std::move(values_);
    return table;
  }
  const RecordSource::Record record = {record_bytes(), LabelBytes(labels_), kImageBytes, nullptr};
  TESSERA_ASSIGN_OR_RETURN(table.values, RecordSource::Open(files_, record));
  return table;
}

// Whether the images are more than may be held, and none is compressed.
absl::StatusOr<bool> Stays(const std::vector<std::string>& paths, const TableSpec& spec,
                           CifarLabels labels) {
  // No limit was given: everything is held.
  if (spec.held_bytes_max == TableSpec().held_bytes_max) return false;
  int64_t rows = 0;
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
    if (source->compressed()) return false;
    rows += source->content_bytes_max() / (LabelBytes(labels) + kImageBytes);
  }
  return rows * kImageBytes > spec.held_bytes_max;
}

}  // namespace

absl::StatusOr<Table> ReadCifar(const std::vector<std::string>& paths, const TableSpec& spec,
                                CifarLabels labels) {
  if (spec.features != kImageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("data.format cifar: row size is ", kImageBytes,
                                                   ", want ", spec.features,
                                                   ", the product of model.input"));
  }
  TESSERA_RETURN_IF_ERROR(CheckRowShape("data.format cifar", kRowSizes, spec));
  TESSERA_ASSIGN_OR_RETURN(const bool stays, Stays(paths, spec, labels));
  CifarReader reader(spec, labels, stays);
  for (const std::string& path : paths) TESSERA_RETURN_IF_ERROR(reader.AppendFile(path));
  return reader.Finish();
}

namespace {

// A file of bytes that is some records long.
absl::StatusOr<bool> IsCifar(const FileHead& head) {
  if (head.is_text()) return false;
  TESSERA_ASSIGN_OR_RETURN(const int64_t bytes, head.ContentBytes());
  return bytes % (LabelBytes(CifarLabels::kOne) + kImageBytes) == 0 ||
         bytes % (LabelBytes(CifarLabels::kFine) + kImageBytes) == 0;
}

absl::Status LookAtCifar(const std::vector<std::string>& train, const std::vector<std::string>&,
                         RowsLook* look) {
  look->input = {3, 32, 32};
  TESSERA_ASSIGN_OR_RETURN(const int64_t bytes, ContentBytes(train[0]));
  if (bytes % (LabelBytes(CifarLabels::kOne) + kImageBytes) == 0) return absl::OkStatus();
  look->own_value = "fine";
  look->own_note = "Records have two labels; the other one is coarse.";
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadCifarFiles(const TableFiles& files, const TableSpec& spec,
                                     TrainingConventions*) {
  const std::string& labels = files.data.labels();
  return ReadCifar(files.features, spec,
                   labels.empty()     ? CifarLabels::kOne
                   : labels == "fine" ? CifarLabels::kFine
                                      : CifarLabels::kCoarse);
}

}  // namespace

extern const FileFormat kCifarFormat = {"cifar", IsCifar, LookAtCifar, ReadCifarFiles};

}  // namespace tessera

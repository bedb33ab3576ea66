#include "deploy/cli/init/data_look.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/data_formats.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/file_formats.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

// Labels beyond these many different ones are taken for numbers.
constexpr int64_t kClassesMax = 65536;
constexpr size_t kNumbersFrom = 1000;
// Rows whose values are looked at, and values of them.
constexpr int64_t kRowsLooked = 10000;
constexpr int64_t kValuesLooked = int64_t{1} << 24;
// Values beyond this are worth a normalisation.
constexpr double kLarge = 4;

v1::Data DataOf(const DataLook& look) {
  v1::Data data;
  data.set_format(look.files.format);
  data.set_threads(1);
  data.set_partition("global");
  for (const auto& [paths, labels, files] :
       {std::make_tuple(&look.files.train, &look.files.train_labels, data.mutable_train()),
        std::make_tuple(&look.files.test, &look.files.test_labels, data.mutable_test())}) {
    for (const std::string& path : *paths) {
      files->add_features(std::filesystem::absolute(path).string());
    }
    for (const std::string& path : *labels) {
      files->add_labels(std::filesystem::absolute(path).string());
    }
  }
  const DataFormat& format = DataFormatOf(look.files.format);
  if (!look.own_value.empty()) {
    const auto* const key = v1::Data::descriptor()->FindFieldByName(std::string(format.own_key));
    v1::Data::GetReflection()->SetString(&data, key, look.own_value);
  }
  if (format.is_pictures) {
    data.set_resize(look.input[1]);
    data.set_crop(look.input[1]);
  }
  return data;
}

// The labels of rows as numbers.
std::vector<float> LabelsOf(const Dataset& data) {
  std::vector<float> labels(static_cast<size_t>(data.rows()));
  std::vector<int32_t> classes(labels.size());
  std::vector<uint32_t> rows(labels.size());
  std::iota(rows.begin(), rows.end(), 0u);
  BatchView out;
  if (data.has_classes()) {
    out.classes = classes.data();
  } else {
    out.targets = labels.data();
  }
  data.FillBatch(rows, out);
  if (data.has_classes()) std::copy(classes.begin(), classes.end(), labels.begin());
  return labels;
}

// Whether labels are classes, and how many.
void CountClasses(const Datasets& data, DataLook* look) {
  std::vector<float> labels = LabelsOf(data.train);
  const std::set<float> trained(labels.begin(), labels.end());
  const bool is_whole = std::all_of(trained.begin(), trained.end(),
                                    [](float label) { return label == std::floor(label); });
  if (!is_whole || trained.size() > kNumbersFrom) {
    look->classes = 0;
    return;
  }
  std::set<float> all = trained;
  for (const float label : LabelsOf(data.test)) all.insert(label);
  const bool numbers_labels = DataFormatOf(look->files.format).numbers_labels;
  const bool from_zero = *all.begin() == 0;
  look->classes = numbers_labels && !from_zero ? static_cast<int64_t>(trained.size())
                                               : static_cast<int64_t>(*all.rbegin()) + 1;
  look->classes = std::clamp<int64_t>(look->classes, 2, kClassesMax);
}

// Mean and standard deviation of the first rows, and whether features need a normalisation of their own.
void LookAtValues(const Dataset& data, DataLook* look) {
  const int64_t rows =
      std::min({data.rows(), kRowsLooked, std::max<int64_t>(1, kValuesLooked / data.inputs())});
  std::vector<float> values(static_cast<size_t>(rows * data.inputs()));
  std::vector<uint32_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0u);
  BatchView out;
  out.features = values.data();
  data.FillBatch(numbers, out);
  double sum = 0, squares = 0, most = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
    most = std::max(most, std::fabs(static_cast<double>(value)));
  }
  const auto count = static_cast<double>(values.size());
  look->is_bytes = data.is_bytes();
  look->mean = sum / count;
  const double variance = squares / count - look->mean * look->mean;
  look->stddev = variance > 1e-12 ? std::sqrt(variance) : 1;
  look->wants_normalization = most > kLarge;
}

}  // namespace

absl::StatusOr<DataLook> LookAtData(const FoundFiles& files) {
  DataLook look;
  look.files = files;
  const DataFormat& format = DataFormatOf(files.format);
  if (format.labels_apart && files.train_labels.size() != files.train.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "saw ", files.train.size(), " files of features and ", files.train_labels.size(),
        " of labels to train on, want one of labels for each, with \"labels\", \"target\" or \"y\" "
        "as a word of its name: x_train.npy and y_train.npy"));
  }
  TESSERA_RETURN_IF_ERROR(FileFormatOf(format.name).look(files.train, files.test, &look));
  if (format.is_tokens) return look;
  ModelEnds ends;
  ends.input = look.input;
  ends.inputs =
      std::accumulate(look.input.begin(), look.input.end(), int64_t{1}, std::multiplies<>());
  ends.sigmoid = look.has_sets;
  // Where labels may be any numbers they are read as such, to see whether they are classes.
  ends.numbers = format.number_labels && !look.has_sets;
  ends.outputs = ends.numbers ? 1 : look.classes > 0 ? look.classes : kClassesMax;
  TESSERA_ASSIGN_OR_RETURN(const Datasets data,
                           LoadDatasets(DataOf(look), ends, DatasetBytesMaxHere()));
  look.train_rows = data.train.rows();
  look.test_rows = data.test.rows();
  if (!look.has_sets && !format.is_pictures) CountClasses(data, &look);
  if (!look.is_sparse) LookAtValues(data.train, &look);
  return look;
}

}  // namespace tessera

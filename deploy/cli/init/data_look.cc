#include "deploy/cli/init/data_look.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/config/data_formats.h"
#include "proto/job.pb.h"
#include "worker/data/byte_source.h"
#include "worker/data/csv_columns.h"
#include "worker/data/dataset.h"
#include "worker/data/limits.h"
#include "worker/data/line_source.h"
#include "worker/data/load_datasets.h"
#include "worker/data/npy_header.h"

namespace tessera {
namespace {

// Labels beyond these many different ones are taken for numbers.
constexpr int64_t kClassesMax = 65536;
constexpr size_t kNumbersFrom = 1000;
// Rows whose values are looked at, and values of them.
constexpr int64_t kRowsLooked = 10000;
constexpr int64_t kValuesLooked = int64_t{1} << 24;
constexpr int64_t kLineBytesMax = int64_t{1} << 30;
// Values beyond this are worth a normalisation.
constexpr double kLarge = 4;
// Pictures have sizes of their own; this is what they are made.
constexpr int64_t kPictureSide = 64;
constexpr int64_t kCifarPixels = 3072;
// An image is one from so many pixels a side: convolutions see nothing in less.
constexpr int64_t kImageSide = 8;

using Paths = std::vector<std::string>;

absl::StatusOr<std::unique_ptr<LineSource>> OpenLines(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(path));
  return std::make_unique<LineSource>(std::move(bytes), kLineBytesMax);
}

absl::StatusOr<std::string> FirstLine(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto lines, OpenLines(path));
  absl::string_view line;
  TESSERA_ASSIGN_OR_RETURN(const bool is_there, lines->Next(&line));
  if (!is_there) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  return std::string(line);
}

// model.input of rows with these sizes: images where they seem to be some.
std::vector<int64_t> InputOf(const std::vector<int64_t>& sizes) {
  const int64_t values =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  if (sizes.size() == 2 && std::min(sizes[0], sizes[1]) >= kImageSide) {
    return {1, sizes[0], sizes[1]};
  }
  // The channels may be last, which the reader refuses with the words that help.
  if (sizes.size() == 3) {
    return sizes[2] <= 4 ? std::vector<int64_t>{sizes[2], sizes[0], sizes[1]} : sizes;
  }
  return {values};
}

// The sizes of a row of an IDX file: what stands behind 00 00 type rank and the number of rows, big-endian.
absl::StatusOr<std::vector<int64_t>> IdxSizes(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  unsigned char head[4];
  TESSERA_RETURN_IF_ERROR(source->ReadExactly(head, sizeof(head), "the header"));
  std::vector<int64_t> sizes;
  for (int i = 0; i < head[3]; ++i) {
    unsigned char size[4];
    TESSERA_RETURN_IF_ERROR(source->ReadExactly(size, sizeof(size), "a size"));
    sizes.push_back(int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
  }
  sizes.erase(sizes.begin());
  return sizes;
}

absl::StatusOr<std::vector<int64_t>> NpySizes(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const ArrayHeader header, ReadNpyHeader(*source));
  return std::vector<int64_t>(header.sizes.begin() + 1, header.sizes.end());
}

// The fields of a csv file's lines, and the label's name where the header says that it is not the last.
absl::Status LookAtCsv(DataLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string first, FirstLine(look->files.train[0]));
  const std::vector<std::string> fields = absl::StrSplit(first, ',');
  look->input = {std::max<int64_t>(1, static_cast<int64_t>(fields.size()) - 1)};
  if (!IsCsvHeader(first)) return absl::OkStatus();
  const auto names_label = [](absl::string_view field) {
    std::string name(absl::StripAsciiWhitespace(field));
    if (name.size() > 1 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    name = absl::AsciiStrToLower(name);
    return name == "label" || name == "labels" || name == "class" || name == "target";
  };
  if (names_label(fields.back())) return absl::OkStatus();
  const auto label = std::find_if(fields.begin(), fields.end(), names_label);
  if (label != fields.end()) look->label_column = std::string(absl::StripAsciiWhitespace(*label));
  return absl::OkStatus();
}

// Calls `see` with each line's words that are no comment.
template <typename See>
absl::Status ForLines(const Paths& paths, See see) {
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(const auto lines, OpenLines(path));
    absl::string_view line;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const bool is_there, lines->Next(&line));
      if (!is_there) break;
      see(line);
    }
  }
  return absl::OkStatus();
}

// The largest index of libsvm files, and whether a row has several labels.
absl::Status LookAtLibsvm(DataLook* look) {
  int64_t largest = 0, entries = 0, rows = 0, label_max = 0;
  bool from_zero = false;
  const auto see = [&](absl::string_view line) {
    if (absl::StartsWith(line, "#")) {
      from_zero = from_zero || absl::StrContains(line, "zero-based");
      return;
    }
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    ++rows;
    for (const absl::string_view word : words) {
      const size_t colon = word.find(':');
      int64_t index;
      if (colon == absl::string_view::npos) {
        const std::vector<absl::string_view> labels = absl::StrSplit(word, ',');
        look->has_sets = look->has_sets || labels.size() > 1;
        for (const absl::string_view label : labels) {
          if (absl::SimpleAtoi(label, &index)) label_max = std::max(label_max, index);
        }
      } else if (absl::SimpleAtoi(word.substr(0, colon), &index)) {
        largest = std::max(largest, index);
        ++entries;
      }
    }
  };
  TESSERA_RETURN_IF_ERROR(ForLines(look->files.train, see));
  if (!look->files.has_no_test) TESSERA_RETURN_IF_ERROR(ForLines(look->files.test, see));
  look->input = {std::max<int64_t>(1, largest + (from_zero ? 1 : 0))};
  look->is_sparse =
      look->input[0] >= kSparseFeaturesMin && entries * kSparseShareInverse < rows * look->input[0];
  if (look->has_sets) look->classes = label_max + 1;
  return absl::OkStatus();
}

absl::Status LookAtXc(DataLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string first, FirstLine(look->files.train[0]));
  const std::vector<std::string> counts = absl::StrSplit(first, ' ', absl::SkipEmpty());
  int64_t features, labels;
  if (counts.size() != 3 || !absl::SimpleAtoi(counts[1], &features) ||
      !absl::SimpleAtoi(counts[2], &labels)) {
    return absl::InvalidArgumentError(
        absl::StrCat(look->files.train[0], ":1: got \"", first, "\", want `rows features labels`"));
  }
  look->input = {features};
  look->classes = labels;
  look->has_sets = true;
  look->is_sparse = true;
  return absl::OkStatus();
}

// The bytes of CIFAR-100 have two labels each.
absl::Status LookAtCifar(DataLook* look) {
  look->input = {3, 32, 32};
  int64_t bytes = 0;
  std::string buffer(1 << 20, '\0');
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(look->files.train[0]));
  for (size_t got = buffer.size(); got == buffer.size();) {
    TESSERA_ASSIGN_OR_RETURN(got, source->Read(&buffer[0], buffer.size()));
    bytes += static_cast<int64_t>(got);
  }
  if (bytes % (kCifarPixels + 1) != 0) look->cifar_labels = "fine";
  return absl::OkStatus();
}

// The number of class folders.
absl::Status LookAtImages(DataLook* look) {
  look->input = {3, kPictureSide, kPictureSide};
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(look->files.train[0], error)) {
    const std::string name = each.path().filename().string();
    look->classes += each.is_directory(error) && !absl::StartsWith(name, ".") ? 1 : 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ContentOf(const Paths& paths) {
  std::string content;
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(const auto source,
                             ByteSource::Open(path, ByteSource::Kinds::kAnyText));
    std::string buffer(1 << 20, '\0');
    for (size_t got = buffer.size(); got == buffer.size();) {
      TESSERA_ASSIGN_OR_RETURN(got, source->Read(&buffer[0], buffer.size()));
      content.append(buffer, 0, got);
    }
  }
  return content;
}

// The different characters of a text; nullopt: it is no UTF-8, or has more than a small model tells apart.
std::optional<std::set<std::string>> CharactersOf(absl::string_view text) {
  constexpr size_t kMost = 4096;
  std::set<std::string> characters;
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return std::nullopt;
    characters.emplace(text.substr(0, bytes));
    if (characters.size() > kMost) return std::nullopt;
    text.remove_prefix(bytes);
  }
  return characters;
}

absl::Status LookAtText(DataLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string train, ContentOf(look->files.train));
  TESSERA_ASSIGN_OR_RETURN(const std::string test, ContentOf(look->files.test));
  look->tokens = static_cast<int64_t>(train.size());
  look->test_tokens = static_cast<int64_t>(test.size());
  const auto known = CharactersOf(train), asked = CharactersOf(test);
  // A character of the test text that the training text has not has no number.
  const bool fits =
      known && asked && std::includes(known->begin(), known->end(), asked->begin(), asked->end());
  look->tokenizer = fits ? "characters" : "bytes";
  look->vocabulary = fits ? std::max<int64_t>(2, static_cast<int64_t>(known->size())) : 256;
  return absl::OkStatus();
}

// The largest token of files of 16 bits each.
absl::Status LookAtTokens(DataLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string train, ContentOf(look->files.train));
  TESSERA_ASSIGN_OR_RETURN(const std::string test, ContentOf(look->files.test));
  look->tokens = static_cast<int64_t>(train.size() / 2);
  look->test_tokens = static_cast<int64_t>(test.size() / 2);
  int64_t largest = 1;
  for (const std::string* const each : {&train, &test}) {
    for (size_t i = 0; i + 1 < each->size(); i += 2) {
      largest = std::max<int64_t>(largest, static_cast<unsigned char>((*each)[i]) |
                                               static_cast<unsigned char>((*each)[i + 1]) << 8);
    }
  }
  look->vocabulary = largest + 1;
  return absl::OkStatus();
}

// How each format tells what its rows look like. Formats of arrays have it in the header of the features.
struct FormatLook {
  absl::string_view name;
  absl::Status (*look)(DataLook* look);
};
constexpr FormatLook kLooks[] = {
    {"idx",
     [](DataLook* look) {
       TESSERA_ASSIGN_OR_RETURN(const auto sizes, IdxSizes(look->files.train[0]));
       look->input = InputOf(sizes);
       return absl::OkStatus();
     }},
    {"npy",
     [](DataLook* look) {
       TESSERA_ASSIGN_OR_RETURN(const auto sizes, NpySizes(look->files.train[0]));
       look->input = InputOf(sizes);
       return absl::OkStatus();
     }},
    {"csv", LookAtCsv},
    {"libsvm", LookAtLibsvm},
    {"xc", LookAtXc},
    {"cifar", LookAtCifar},
    {"images", LookAtImages},
    {"text", LookAtText},
    {"tokens", LookAtTokens},
};

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
  if (!look.label_column.empty()) data.set_label_column(look.label_column);
  if (!look.cifar_labels.empty()) data.set_labels(look.cifar_labels);
  if (DataFormatOf(look.files.format).is_pictures) {
    data.set_resize(kPictureSide);
    data.set_crop(kPictureSide);
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
  const auto* const found =
      std::find_if(std::begin(kLooks), std::end(kLooks),
                   [&format](const FormatLook& each) { return each.name == format.name; });
  TESSERA_CHECK(found != std::end(kLooks));
  TESSERA_RETURN_IF_ERROR(found->look(&look));
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

#include "common/config/data_formats.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/schema.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

// A CIFAR record is an image of 32 x 32 pixels: all of red, then green, then blue.
constexpr int64_t kCifarRow[] = {3, 32, 32};

constexpr DataFormat Named(absl::string_view name) {
  DataFormat format;
  format.name = name;
  return format;
}

// IDX and NumPy files are arrays, with the labels in another one.
constexpr DataFormat ArrayNamed(absl::string_view name) {
  DataFormat format = Named(name);
  format.labels_apart = true;
  format.reads_in_place = true;
  return format;
}

constexpr DataFormat Npy() {
  DataFormat format = ArrayNamed("npy");
  format.number_labels = true;
  return format;
}

constexpr DataFormat Csv() {
  DataFormat format = Named("csv");
  format.own_key = "label_column";
  format.number_labels = true;
  return format;
}

constexpr DataFormat Libsvm() {
  DataFormat format = Named("libsvm");
  format.numbers_labels = true;
  format.number_labels = true;
  format.has_entries = true;
  return format;
}

constexpr DataFormat Xc() {
  DataFormat format = Named("xc");
  format.stays_sparse = true;
  format.has_entries = true;
  return format;
}

constexpr DataFormat Cifar() {
  DataFormat format = Named("cifar");
  format.row_sizes = kCifarRow;
  format.own_key = "labels";
  format.reads_in_place = true;
  return format;
}

constexpr DataFormat Images() {
  DataFormat format = Named("images");
  format.reads_in_place = true;
  format.is_pictures = true;
  return format;
}

// Numbers of tokens, as they lie.
constexpr DataFormat Tokens() {
  DataFormat format = Named("tokens");
  format.own_key = "type";
  format.reads_in_place = true;
  format.is_tokens = true;
  return format;
}

constexpr DataFormat Text() {
  DataFormat format = Named("text");
  format.own_key = "tokenizer";
  format.is_tokens = true;
  return format;
}

// The formats of which a job must say, or may not say, something. Of others all answers are no.
constexpr DataFormat kAnswers[] = {ArrayNamed("idx"), Csv(),    Libsvm(), Xc(), Cifar(), Npy(),
                                   Images(),          Tokens(), Text()};

DataFormat FormatNamed(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kAnswers), std::end(kAnswers),
                   [name](const DataFormat& format) { return format.name == name; });
  return found == std::end(kAnswers) ? Named(name) : *found;
}

// One for each name that the schema has for data.format, in its order. The names are the schema's own texts, which
// live as long as the program.
std::vector<DataFormat> FormatsOfSchema() {
  std::vector<DataFormat> formats;
  const auto* const key = v1::Data::descriptor()->FindFieldByName("format");
  for (const std::string& name : KeyOf(*key).one_of()) formats.push_back(FormatNamed(name));
  // Answers under a name that the schema has not would be nobody's.
  for (const DataFormat& answers : kAnswers) {
    TESSERA_CHECK(std::any_of(formats.begin(), formats.end(), [&](const DataFormat& format) {
      return format.name == answers.name;
    }));
  }
  return formats;
}

}  // namespace

absl::Span<const DataFormat> DataFormats() {
  static const auto* const formats = new std::vector<DataFormat>(FormatsOfSchema());
  return *formats;
}

std::string DataFormatNames() {
  std::string names;
  const absl::Span<const DataFormat> formats = DataFormats();
  for (const DataFormat& format : formats) {
    const bool is_last = &format == &formats.back();
    absl::StrAppend(&names, names.empty() ? "" : is_last ? " or " : ", ", format.name);
  }
  return names;
}

const DataFormat* FindDataFormat(absl::string_view name) {
  for (const DataFormat& format : DataFormats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

const DataFormat& DataFormatOf(absl::string_view name) {
  const DataFormat* const format = FindDataFormat(name);
  TESSERA_CHECK(format != nullptr);
  return *format;
}

}  // namespace tessera

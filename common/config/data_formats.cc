#include "common/config/data_formats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

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

constexpr DataFormat kDataFormats[] = {ArrayNamed("idx"), Csv(),    Libsvm(), Xc(), Cifar(), Npy(),
                                       Images(),          Tokens(), Text()};

}  // namespace

absl::Span<const DataFormat> DataFormats() { return kDataFormats; }

std::string DataFormatNames() {
  std::string names;
  for (const DataFormat& format : kDataFormats) {
    const bool is_last = &format == std::end(kDataFormats) - 1;
    absl::StrAppend(&names, names.empty() ? "" : is_last ? " or " : ", ", format.name);
  }
  return names;
}

const DataFormat* FindDataFormat(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kDataFormats), std::end(kDataFormats),
                   [name](const DataFormat& format) { return format.name == name; });
  return found == std::end(kDataFormats) ? nullptr : found;
}

const DataFormat& DataFormatOf(absl::string_view name) {
  const DataFormat* const format = FindDataFormat(name);
  TESSERA_CHECK(format != nullptr);
  return *format;
}

}  // namespace tessera

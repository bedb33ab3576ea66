#include "common/config/data_formats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// A CIFAR record is an image of 32 x 32 pixels: all of red, then green, then blue.
constexpr int64_t kCifarRow[] = {3, 32, 32};

constexpr DataFormat kIdx = {"idx", /*labels_apart=*/true};
constexpr DataFormat kCsv = {
    "csv", false, false, false, {}, /*own_key=*/"label_column", /*number_labels=*/true};
constexpr DataFormat kLibsvm = {
    "libsvm", false, false, /*numbers_labels=*/true, {}, {}, /*number_labels=*/true};
constexpr DataFormat kXc = {"xc", false, /*stays_sparse=*/true};
constexpr DataFormat kCifar = {"cifar", false, false, false, kCifarRow, /*own_key=*/"labels"};
constexpr DataFormat kNpy = {"npy", /*labels_apart=*/true, false, false, {},
                             {},    /*number_labels=*/true};

constexpr DataFormat kDataFormats[] = {kIdx, kCsv, kLibsvm, kXc, kCifar, kNpy};

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

#include "worker/data/file_formats.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {

// Each is defined in the source of its name.
extern const FileFormat kCifarFormat, kCsvFormat, kIdxFormat, kImagesFormat, kLibsvmFormat,
    kNpyFormat, kTextFormat, kTokensFormat, kXcFormat;

namespace {

// Arrays begin with bytes of their own. Rows of xc and libsvm may pass for csv, and each of the three for a text. Files
// of records have nothing but their sizes to be told by.
constexpr const FileFormat* kFileFormats[] = {
    &kNpyFormat,  &kIdxFormat,   &kXcFormat,     &kLibsvmFormat, &kCsvFormat,
    &kTextFormat, &kCifarFormat, &kTokensFormat, &kImagesFormat,
};

}  // namespace

absl::Span<const FileFormat* const> FileFormats() { return kFileFormats; }

const FileFormat& FileFormatOf(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFileFormats), std::end(kFileFormats),
                   [name](const FileFormat* format) { return format->name == name; });
  TESSERA_CHECK(found != std::end(kFileFormats));
  return **found;
}

}  // namespace tessera

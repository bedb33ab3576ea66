#include "worker/data/picture/jpeg.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
// The library's headers want <cstdio> before them.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/picture/exif.h"

namespace tessera {
namespace {

// A progressive file may claim any number of scans, each of which costs a pass over all pixels. Real ones have about
// ten.
constexpr int kScansMax = 100;
constexpr char kExifMark[] = "Exif\0";  // and the zero that ends it
constexpr unsigned kMarkerBytesMax = 0xffff;
// At the edges of what is decoded colours are interpolated as at the edge of a picture, which reaches one column far.
constexpr int64_t kMargin = 2;

// The library's decoder and where it goes when it fails. A failure is a jump over the library's own frames, so that no
// object with a destructor may live between setjmp and the jump.
struct JpegDecoder {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf failed;
  char message[JMSG_LENGTH_MAX];
};

JpegDecoder& DecoderOf(j_common_ptr jpeg) { return *static_cast<JpegDecoder*>(jpeg->client_data); }

[[noreturn]] void Fail(j_common_ptr jpeg) {
  JpegDecoder& decoder = DecoderOf(jpeg);
  decoder.errors.format_message(jpeg, decoder.message);
  std::longjmp(decoder.failed, 1);
}

// These warnings mean that pixels are missing; any other one leaves the picture what it is.
void Emit(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      Fail(jpeg);
    default:
      return;
  }
}

void Ignore(j_common_ptr) {}

void CheckScans(j_common_ptr jpeg) {
  JpegDecoder& decoder = DecoderOf(jpeg);
  if (jpeg->is_decompressor && decoder.jpeg.input_scan_number > kScansMax) {
    std::snprintf(decoder.message, sizeof decoder.message, "more than %d scans", kScansMax);
    std::longjmp(decoder.failed, 1);
  }
}

// To be called behind setjmp(decoder->failed).
void Begin(absl::Span<const uint8_t> file, JpegDecoder* decoder) {
  jpeg_create_decompress(&decoder->jpeg);
  decoder->jpeg.progress = &decoder->progress;
  jpeg_mem_src(&decoder->jpeg, file.data(), file.size());
  // EXIF lies in APP1.
  jpeg_save_markers(&decoder->jpeg, JPEG_APP0 + 1, kMarkerBytesMax);
  jpeg_read_header(&decoder->jpeg, TRUE);
}

void Init(JpegDecoder* decoder) {
  // What the library has not made is null, so that jpeg_destroy_decompress may be called in any case.
  std::memset(decoder, 0, sizeof *decoder);
  decoder->jpeg.err = jpeg_std_error(&decoder->errors);
  decoder->jpeg.client_data = decoder;
  decoder->errors.error_exit = Fail;
  decoder->errors.emit_message = Emit;
  decoder->errors.output_message = Ignore;
  decoder->progress.progress_monitor = CheckScans;
}

absl::Status Failure(JpegDecoder* decoder) {
  const std::string why = decoder->message;
  jpeg_destroy_decompress(&decoder->jpeg);
  return absl::InvalidArgumentError(absl::StrCat("is a JPEG picture that does not decode: ", why));
}

int OrientationOf(const jpeg_decompress_struct& jpeg) {
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->data_length < sizeof kExifMark) continue;
    if (std::memcmp(marker->data, kExifMark, sizeof kExifMark) != 0) continue;
    return ExifOrientation(absl::MakeConstSpan(marker->data + sizeof kExifMark,
                                               marker->data_length - sizeof kExifMark));
  }
  return 1;
}

}  // namespace

bool IsJpeg(absl::Span<const uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

absl::StatusOr<PictureHeader> ReadJpegHeader(absl::Span<const uint8_t> file) {
  JpegDecoder decoder;
  Init(&decoder);
  if (setjmp(decoder.failed) != 0) return Failure(&decoder);
  Begin(file, &decoder);
  PictureHeader header;
  header.height = decoder.jpeg.image_height;
  header.width = decoder.jpeg.image_width;
  header.orientation = OrientationOf(decoder.jpeg);
  const J_COLOR_SPACE colours = decoder.jpeg.jpeg_color_space;
  jpeg_destroy_decompress(&decoder.jpeg);
  if (colours == JCS_CMYK || colours == JCS_YCCK) {
    return absl::InvalidArgumentError(
        "is a JPEG picture in CMYK, want grey or RGB; convert it, as colours depend on its "
        "profile");
  }
  if (colours != JCS_GRAYSCALE && colours != JCS_YCbCr && colours != JCS_RGB) {
    return absl::InvalidArgumentError(
        "is a JPEG picture in colours that are not known, want grey or RGB");
  }
  return header;
}

absl::Status DecodeJpeg(absl::Span<const uint8_t> file, int reduction, const Rectangle& part,
                        Picture* out) {
  TESSERA_CHECK(reduction == 1 || reduction == 2 || reduction == 4 || reduction == 8);
  JpegDecoder decoder;
  Init(&decoder);
  if (setjmp(decoder.failed) != 0) return Failure(&decoder);
  Begin(file, &decoder);
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  // Four bytes for each pixel, as resampling reads four values at once.
  jpeg.out_color_space = JCS_EXT_RGBX;
  jpeg.scale_num = 8 / static_cast<unsigned>(reduction);
  jpeg.scale_denom = 8;
  // What the library says counts, as it rounds up.
  jpeg_calc_output_dimensions(&jpeg);
  out->height = jpeg.output_height;
  out->width = jpeg.output_width;
  const size_t row_bytes = static_cast<size_t>(out->width) * Picture::kChannels;
  try {
    out->pixels.resize(out->height * row_bytes);
  } catch (...) {
    jpeg_destroy_decompress(&jpeg);
    throw;
  }
  jpeg_start_decompress(&jpeg);
  // A progressive file may leave coefficients open, which are then guessed from the blocks around.
  const bool is_cut = !jpeg.progressive_mode;
  const int64_t left = is_cut ? std::max(int64_t{0}, part.left - kMargin) : 0;
  const int64_t right =
      is_cut ? std::min(out->width, part.left + part.width + kMargin) : out->width;
  const int64_t top = is_cut ? part.top : 0;
  const int64_t bottom = is_cut ? part.top + part.height : out->height;
  TESSERA_CHECK(top >= 0 && top < bottom && bottom <= out->height && left < right);
  auto first = static_cast<JDIMENSION>(left), width = static_cast<JDIMENSION>(right - left);
  // The library moves the left edge to a block's, and widens the row.
  if (right - left < out->width) jpeg_crop_scanline(&jpeg, &first, &width);
  if (top > 0) jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(top));
  const auto read_until = [&](int64_t end) {
    while (jpeg.output_scanline < end) {
      JSAMPROW row =
          out->pixels.data() + jpeg.output_scanline * row_bytes + first * Picture::kChannels;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
  };
  read_until(bottom);
  // Where the last row is skipped, too, the library leaves the rest of the file unread.
  if (bottom + 1 < out->height) {
    // The rest is skipped to its end, as warnings about missing data come when it is read.
    jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(out->height - 1 - bottom));
  }
  read_until(out->height);
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return absl::OkStatus();
}

}  // namespace tessera

#include "worker/data/picture/png.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/picture/exif.h"

namespace tessera {
namespace {

constexpr uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
// The most bytes of one chunk that is no picture's data, such as a colour profile, and of anything that the library
// allocates, of which rows of the widest picture are the largest.
constexpr png_alloc_size_t kChunkBytesMax = png_alloc_size_t{8} << 20;
// Chunks that are kept, of text and the like.
constexpr png_uint_32 kChunksMax = 1000;

// The library's decoder, what it has yet to read, and where it goes when it fails. A failure is a jump over the
// library's own frames, so that no object with a destructor may live between setjmp and the jump.
struct PngDecoder {
  png_structp png;
  png_infop info;
  const uint8_t* next;
  size_t left;
  std::jmp_buf failed;
  char message[200];
};

[[noreturn]] void Fail(png_structp png, png_const_charp message) {
  auto* const decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder->message, sizeof decoder->message, "%s", message);
  std::longjmp(decoder->failed, 1);
}

void Ignore(png_structp, png_const_charp) {}

void ReadBytes(png_structp png, png_bytep out, size_t count) {
  auto* const decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  // The library's read function cannot return less than it was asked for: png_error jumps.
  if (count > decoder->left) png_error(png, "the file was cut off");
  std::memcpy(out, decoder->next, count);
  decoder->next += count;
  decoder->left -= count;
}

// A chunk that claims more than its limit is only warned of by the library, which then asks for as much memory.
void* Allocate(png_structp, png_alloc_size_t bytes) {
  return bytes > kChunkBytesMax ? nullptr : std::malloc(bytes);
}

void Free(png_structp, void* memory) { std::free(memory); }

// To be called behind setjmp(decoder->failed). Reads all that stands before the pixels.
void Begin(PngDecoder* decoder) {
  decoder->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, decoder, Fail, Ignore, nullptr,
                                          Allocate, Free);
  if (decoder->png == nullptr) {
    std::snprintf(decoder->message, sizeof decoder->message, "no memory for a decoder");
    std::longjmp(decoder->failed, 1);
  }
  decoder->info = png_create_info_struct(decoder->png);
  if (decoder->info == nullptr) png_error(decoder->png, "no memory for a decoder");
  // Sides are checked by the caller (CheckSize).
  png_set_user_limits(decoder->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_chunk_malloc_max(decoder->png, kChunkBytesMax);
  png_set_chunk_cache_max(decoder->png, kChunksMax);
  png_set_read_fn(decoder->png, decoder, ReadBytes);
  png_read_info(decoder->png, decoder->info);
}

void Init(absl::Span<const uint8_t> file, PngDecoder* decoder) {
  std::memset(decoder, 0, sizeof *decoder);
  decoder->next = file.data();
  decoder->left = file.size();
}

void Destroy(PngDecoder* decoder) {
  png_destroy_read_struct(&decoder->png, &decoder->info, nullptr);
}

absl::Status Failure(PngDecoder* decoder) {
  const std::string why = decoder->message;
  Destroy(decoder);
  return absl::InvalidArgumentError(absl::StrCat("is a PNG picture that does not decode: ", why));
}

}  // namespace

bool IsPng(absl::Span<const uint8_t> file) {
  return file.size() >= sizeof kSignature &&
         std::memcmp(file.data(), kSignature, sizeof kSignature) == 0;
}

absl::StatusOr<PictureHeader> ReadPngHeader(absl::Span<const uint8_t> file) {
  PngDecoder decoder;
  Init(file, &decoder);
  if (setjmp(decoder.failed) != 0) return Failure(&decoder);
  Begin(&decoder);
  PictureHeader header;
  header.format = PictureHeader::Format::kPng;
  header.height = png_get_image_height(decoder.png, decoder.info);
  header.width = png_get_image_width(decoder.png, decoder.info);
  png_bytep exif = nullptr;
  png_uint_32 exif_bytes = 0;
  if (png_get_eXIf_1(decoder.png, decoder.info, &exif_bytes, &exif) != 0) {
    header.orientation = ExifOrientation(absl::MakeConstSpan(exif, exif_bytes));
  }
  Destroy(&decoder);
  return header;
}

absl::Status DecodePng(absl::Span<const uint8_t> file, Picture* out) {
  PngDecoder decoder;
  Init(file, &decoder);
  if (setjmp(decoder.failed) != 0) return Failure(&decoder);
  Begin(&decoder);
  const png_structp png = decoder.png;
  out->height = png_get_image_height(png, decoder.info);
  out->width = png_get_image_width(png, decoder.info);
  // From here on the library is told to make 8-bit RGB of all kinds, and then a fourth byte.
  png_set_scale_16(png);
  png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_filler(png, 0xff, PNG_FILLER_AFTER);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, decoder.info);
  const size_t row_bytes = static_cast<size_t>(out->width) * Picture::kChannels;
  if (png_get_rowbytes(png, decoder.info) != row_bytes) png_error(png, "its pixels are not known");
  try {
    out->pixels.resize(out->height * row_bytes);
  } catch (...) {
    Destroy(&decoder);
    throw;
  }
  // An interlaced picture comes in seven passes, which all go to the same rows.
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < out->height; ++y) {
      png_read_row(png, out->pixels.data() + y * row_bytes, nullptr);
    }
  }
  // Behind the pixels a checksum may still be wrong.
  png_read_end(png, nullptr);
  Destroy(&decoder);
  return absl::OkStatus();
}

}  // namespace tessera

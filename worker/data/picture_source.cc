#include "worker/data/picture_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "worker/data/resample.h"

namespace tessera {
namespace {

constexpr int64_t kFileBytesMax = int64_t{256} << 20;
// A picture is decoded at a reduced size only where it is still scaled down to half of that or less: the mean over so
// many pixels hides which of them the decoder has averaged itself.
constexpr int64_t kReducedScaleMin = 2;

// What one thread keeps from picture to picture.
struct Scratch {
  std::vector<uint8_t> file;
  Picture picture;
  std::vector<uint8_t> grey;
  std::vector<uint8_t> scaled;
  Resampler resampler;
};

absl::Status ReadFile(const std::string& path, std::vector<uint8_t>* out) {
  // Without O_NONBLOCK, opening a pipe waits for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, "cannot be opened");
  struct Closer {
    const int descriptor;
    ~Closer() { close(descriptor); }
  } closer{descriptor};
  struct stat about;
  if (fstat(descriptor, &about) != 0) return absl::ErrnoToStatus(errno, "cannot be read");
  if (!S_ISREG(about.st_mode)) return absl::InvalidArgumentError("is no file");
  if (about.st_size > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", about.st_size, " bytes, want at most ", kFileBytesMax));
  }
  out->resize(about.st_size);
  size_t done = 0;
  while (done < out->size()) {
    const ssize_t got = read(descriptor, out->data() + done, out->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    // The file has become shorter since: the decoder says what is missing.
    if (got == 0) break;
    done += got;
  }
  out->resize(done);
  return absl::OkStatus();
}

// The largest reduction that keeps the part `from` large enough for what is made of it.
int ReductionFor(const PictureHeader& header, const PictureCut& cut) {
  if (header.format != PictureHeader::Format::kJpeg) return 1;
  // libjpeg's inverse cosine transform gives 1/2, 1/4 and 1/8 of the size for less work.
  for (const int reduction : {8, 4, 2}) {
    if (cut.from.height / reduction >= kReducedScaleMin * cut.height &&
        cut.from.width / reduction >= kReducedScaleMin * cut.width) {
      return reduction;
    }
  }
  return 1;
}

// The part of the reduced picture that was `from`.
Rectangle Reduced(const Rectangle& from, int reduction, const PictureHeader& header) {
  if (reduction == 1) return from;
  // The whole of the reduced picture, whose sides are rounded up.
  if (from.height == header.height && from.width == header.width) {
    return {0, 0, ReducedSide(header.height, reduction), ReducedSide(header.width, reduction)};
  }
  return {from.top / reduction, from.left / reduction, from.height / reduction,
          from.width / reduction};
}

// The pixels that a row is made of, where `from` is the part of the picture that is scaled.
Rectangle PartRead(const Rectangle& from, const PictureCut& cut) {
  if (from.height == cut.height && from.width == cut.width) {
    return {from.top + cut.taken.top, from.left + cut.taken.left, cut.taken.height,
            cut.taken.width};
  }
  const Reach down = ReachOf(from.height, cut.height, cut.taken.top, cut.taken.height);
  const Reach across = ReachOf(from.width, cut.width, cut.taken.left, cut.taken.width);
  return {from.top + down.begin, from.left + across.begin, down.end - down.begin,
          across.end - across.begin};
}

// Pixels of `channels` values each, of which the first `planes` go one after the other to `out`.
void Separate(const uint8_t* pixels, int64_t count, int channels, int64_t planes, uint8_t* out) {
  for (int64_t c = 0; c < planes; ++c) {
    for (int64_t i = 0; i < count; ++i) out[c * count + i] = pixels[i * channels + c];
  }
}

absl::Status MakeRow(const PictureForm& form, uint32_t row, std::optional<uint64_t> epoch,
                     Scratch* scratch, uint8_t* out) {
  TESSERA_ASSIGN_OR_RETURN(const PictureHeader header, ReadPictureHeader(scratch->file));
  TESSERA_ASSIGN_OR_RETURN(const PictureCut cut,
                           CutOf(form, header.height, header.width, row, epoch));
  const int reduction = ReductionFor(header, cut);
  Picture& picture = scratch->picture;
  const Rectangle from = Reduced(cut.from, reduction, header);
  // Only what is looked at is decoded.
  TESSERA_RETURN_IF_ERROR(
      DecodePicture(scratch->file, header, reduction, PartRead(from, cut), &picture));
  const uint8_t* pixels = picture.pixels.data();
  int channels = Picture::kChannels;
  if (form.channels == 1) {
    GreyOf(picture, &scratch->grey);
    pixels = scratch->grey.data();
    channels = 1;
  }
  const int64_t count = form.height * form.width;
  scratch->scaled.resize(count * channels);
  // Neither side is scaled: pixels are copied.
  if (from.height == cut.height && from.width == cut.width) {
    for (int64_t y = 0; y < form.height; ++y) {
      const int64_t at =
          (from.top + cut.taken.top + y) * picture.width + from.left + cut.taken.left;
      std::copy_n(pixels + at * channels, form.width * channels,
                  scratch->scaled.data() + y * form.width * channels);
    }
  } else {
    scratch->resampler.Resize(pixels, picture.width, channels, from, cut.height, cut.width,
                              cut.taken, scratch->scaled.data());
  }
  Separate(scratch->scaled.data(), count, channels, form.channels, out);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PictureCut> CutOf(const PictureForm& form, int64_t height, int64_t width,
                                 uint32_t row, std::optional<uint64_t> epoch) {
  PictureCut cut;
  cut.from = {0, 0, height, width};
  cut.height = height;
  cut.width = width;
  if (form.resize > 0 && height <= width) {
    cut.height = form.resize;
    // Rounded down, as torchvision's Resize does.
    cut.width = form.resize * width / height;
  } else if (form.resize > 0) {
    cut.width = form.resize;
    cut.height = form.resize * height / width;
  }
  const bool fits = form.crop > 0 ? cut.height >= form.height && cut.width >= form.width
                                  : cut.height == form.height && cut.width == form.width;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is ", width, " x ", height, " pixels",
        form.resize > 0 ? absl::StrCat(", resized ", cut.width, " x ", cut.height) : "", ", want ",
        form.crop > 0 ? "at least " : "", form.width, " x ", form.height,
        form.crop > 0 ? "; set data.resize"
                      : ", as model.input has; set data.resize and data.crop"));
  }
  // A picture that evaluations cannot use is none in training, either, so that what stands in for it is always the
  // same.
  if (epoch.has_value() && form.augmentation.resizes()) {
    cut.from = form.augmentation.ResizedCropOf(*epoch, row, height, width);
    cut.height = form.height;
    cut.width = form.width;
    cut.taken = {0, 0, form.height, form.width};
    return cut;
  }
  // Halves go to the even number, as torchvision's CenterCrop has it.
  cut.taken = {std::lrint(static_cast<double>(cut.height - form.height) / 2),
               std::lrint(static_cast<double>(cut.width - form.width) / 2), form.height,
               form.width};
  return cut;
}

PictureSource::PictureSource(std::vector<std::string> paths, const PictureForm& form)
    : paths_(std::move(paths)), form_(form) {}

absl::Status PictureSource::ReadOwn(uint32_t row, std::optional<uint64_t> epoch,
                                    uint8_t* out) const {
  thread_local Scratch scratch;
  TESSERA_CHECK(row < paths_.size());
  const std::string& path = paths_[row];
  absl::Status status = ReadFile(path, &scratch.file);
  if (status.ok()) status = MakeRow(form_, row, epoch, &scratch, out);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status PictureSource::Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const {
  auto* const values = static_cast<uint8_t*>(out);
  // A row that is known to be broken goes to its stand-in at once.
  const uint32_t known = StandIn(row);
  const absl::Status status = ReadOwn(known, epoch, values);
  if (status.ok()) return status;
  const auto rows = static_cast<uint32_t>(paths_.size());
  for (uint32_t i = 1; i < rows; ++i) {
    // The next row that can be read, in the order of rows: each run finds the same one.
    const uint32_t other = static_cast<uint32_t>((uint64_t{row} + i) % rows);
    if (!ReadOwn(other, epoch, values).ok()) continue;
    absl::MutexLock lock(&mutex_);
    // Logged by the thread that notes it first.
    if (stand_ins_.insert_or_assign(row, other).second) {
      Log(LogLevel::kWarning,
          absl::StrCat("worker: picture skipped path=", paths_[row], " why=\"", status.message(),
                       "\" instead=", paths_[other], " skipped=", stand_ins_.size()));
    }
    return absl::OkStatus();
  }
  return status;
}

uint32_t PictureSource::StandIn(uint32_t row) const {
  absl::MutexLock lock(&mutex_);
  const auto found = stand_ins_.find(row);
  return found == stand_ins_.end() ? row : found->second;
}

int64_t PictureSource::bytes() const {
  auto sum = static_cast<int64_t>(paths_.capacity() * sizeof(std::string));
  for (const std::string& path : paths_) sum += static_cast<int64_t>(path.capacity() + 1);
  return sum;
}

}  // namespace tessera

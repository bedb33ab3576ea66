// Pictures made into rows: read, decoded, scaled and cropped when they are asked for.
//
// A picture that cannot be read, or does not come out at the row's size, is skipped: the next row whose picture can be
// read stands in for it, with its label. Which one that is depends on the files alone, so that all workers agree. Each
// is logged once, with its path, the reason, and how many there were by then.
#ifndef TESSERA_WORKER_DATA_PICTURE_SOURCE_H_
#define TESSERA_WORKER_DATA_PICTURE_SOURCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/data/augmentation.h"
#include "worker/data/picture/picture.h"
#include "worker/data/value_source.h"

namespace tessera {

// How a picture becomes a row.
struct PictureForm {
  // The channels of a row. One channel: the brightness of each pixel; three: red, then green, then blue.
  int64_t channels = 3;
  int64_t height = 0;
  int64_t width = 0;
  // data.resize: the shorter side is made so long, and the longer one in proportion, rounded down; 0: as the file has
  // it.
  int64_t resize = 0;
  // data.crop: the square in the middle; 0: the whole picture, which must then have the row's size.
  int64_t crop = 0;
  // How training pictures are changed at random: resized_crop takes the place of resize and crop.
  Augmentation augmentation = {};
};

// Where a row comes from in a picture: `from` is scaled to `height` x `width`, and of that `taken` is the row.
struct PictureCut {
  Rectangle from;
  int64_t height = 0;
  int64_t width = 0;
  Rectangle taken;
};
// kInvalidArgument: a picture of this size does not give a row; the message does not name the picture.
absl::StatusOr<PictureCut> CutOf(const PictureForm& form, int64_t height, int64_t width,
                                 uint32_t row, std::optional<uint64_t> epoch);

// Any number of threads may read at once.
class PictureSource final : public ValueSource {
 public:
  PictureSource(std::vector<std::string> paths, const PictureForm& form);

  bool is_bytes() const override { return true; }
  // Fails only where no picture at all can be read.
  absl::Status Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const override;
  uint32_t StandIn(uint32_t row) const override ABSL_LOCKS_EXCLUDED(mutex_);
  bool draws() const override { return form_.augmentation.resizes(); }
  int64_t bytes() const override;

  // Read, without another row's standing in. The message names the file.
  absl::Status ReadOwn(uint32_t row, std::optional<uint64_t> epoch, uint8_t* out) const;

 private:
  const std::vector<std::string> paths_;
  const PictureForm form_;
  mutable absl::Mutex mutex_;
  // Rows that cannot be read, and what stands in for each.
  mutable std::map<uint32_t, uint32_t> stand_ins_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_SOURCE_H_

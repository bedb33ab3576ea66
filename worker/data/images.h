// Pictures in folders, JPEG and PNG: picture_files.h says which files a set has, and picture_source.h how each becomes
// a row. Values are bytes.
#ifndef TESSERA_WORKER_DATA_IMAGES_H_
#define TESSERA_WORKER_DATA_IMAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/table.h"

namespace tessera {

struct ImageOptions {
  // data.resize and data.crop.
  int64_t resize = 0;
  int64_t crop = 0;
  // Threads that decode pictures which are held.
  int threads = 1;
};

// What of data.format images says how pictures become rows.
ImageOptions ImageOptionsOf(const v1::Data& data);

// Each of `paths` is a folder of class folders, or a list. `class_names` are those of the training set, which its first
// folder sets. Pictures are decoded now, where they are held; rows that train with a resized_crop, and rows that are
// more than spec.held_bytes_max, are decoded when they are asked for.
//   codes of AppendPictureFiles
//   kInvalidArgument    spec.input is no size that pictures have, or not one of the pictures can be read
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadImages(const std::vector<std::string>& paths, const TableSpec& spec,
                                 const ImageOptions& options,
                                 std::vector<std::string>* class_names);

// A sentence for each of the pictures of `paths` that cannot be read, up to `listed_max`, and how many there are. Codes
// of ReadImages.
struct BadPictures {
  int64_t count = 0;
  std::vector<std::string> messages;
};
absl::StatusOr<BadPictures> FindBadPictures(const std::vector<std::string>& paths,
                                            const TableSpec& spec, const ImageOptions& options,
                                            size_t listed_max);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_IMAGES_H_

#include "worker/data/images.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/layout/row_shape.h"
#include "worker/data/file_format.h"
#include "worker/data/limits.h"
#include "worker/data/picture_files.h"
#include "worker/data/picture_source.h"

namespace tessera {
namespace {

absl::StatusOr<PictureForm> FormOf(const TableSpec& spec, const ImageOptions& options) {
  const bool is_picture = spec.input.size() == 3 && (spec.input[0] == 1 || spec.input[0] == 3);
  if (!is_picture) {
    return absl::InvalidArgumentError(absl::StrCat("model.input: is ", ShapeText(spec.input),
                                                   ", want [3, height, width] or [1, height, "
                                                   "width] with data.format images"));
  }
  PictureForm form;
  form.channels = spec.input[0];
  form.height = spec.input[1];
  form.width = spec.input[2];
  form.resize = options.resize;
  form.crop = options.crop;
  form.augmentation = spec.augmentation;
  return form;
}

// Calls `visit(row)` for all rows, on so many threads. Rows are taken in their order.
template <typename Visit>
void ForRows(int64_t rows, int threads, const Visit& visit) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    // Threads take single rows, as pictures differ in size and so in time.
    for (int64_t row = next++; row < rows; row = next++) visit(row);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < std::min<int64_t>(threads, rows); ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

absl::StatusOr<PictureFiles> FilesOf(const std::vector<std::string>& paths, const TableSpec& spec,
                                     std::vector<std::string>* class_names) {
  PictureFiles files;
  for (const std::string& path : paths) {
    TESSERA_RETURN_IF_ERROR(AppendPictureFiles(path, spec, class_names, &files));
  }
  return files;
}

// Whether there is a picture that can be read; the reason why the first one cannot be, if there is none.
absl::Status CheckOneDecodes(const PictureSource& source, int64_t rows, int64_t features) {
  std::vector<uint8_t> row(features);
  absl::Status first;
  // Only the first failure is told, as all pictures may have the same.
  for (int64_t i = 0; i < rows; ++i) {
    const absl::Status status = source.ReadOwn(static_cast<uint32_t>(i), std::nullopt, row.data());
    if (status.ok()) return status;
    first.Update(status);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(first.message(), rows > 1 ? "; no other picture can be read, either" : ""));
}

// Decodes all pictures. A row that cannot be read becomes the one that stands in for it, with its class.
absl::StatusOr<U8Values> Hold(const PictureSource& source, int64_t rows, int64_t features,
                              int threads, Classes* classes) {
  U8Values values(rows * features);
  absl::Mutex mutex;
  absl::Status status;
  ForRows(rows, threads, [&](int64_t row) {
    // Threads write to rows of their own. Only the status is shared.
    const absl::Status read =
        source.Read(static_cast<uint32_t>(row), std::nullopt, values.data() + row * features);
    if (read.ok()) return;
    absl::MutexLock lock(&mutex);
    status.Update(read);
  });
  // One picture at least could be read a moment ago.
  if (!status.ok()) return status;
  // A copy, as classes of rows that stand in for others are read while the list is written.
  const Classes own = *classes;
  for (int64_t row = 0; row < rows; ++row) {
    (*classes)[row] = own[source.StandIn(static_cast<uint32_t>(row))];
  }
  return values;
}

}  // namespace

absl::StatusOr<Table> ReadImages(const std::vector<std::string>& paths, const TableSpec& spec,
                                 const ImageOptions& options,
                                 std::vector<std::string>* class_names) {
  TESSERA_ASSIGN_OR_RETURN(PictureFiles files, FilesOf(paths, spec, class_names));
  TESSERA_ASSIGN_OR_RETURN(const PictureForm form, FormOf(spec, options));
  Table table;
  table.rows = static_cast<int64_t>(files.paths.size());
  table.features = spec.features;
  table.row_sizes = spec.input;
  // 0 would say that there is no sum.
  table.content_sum = std::max<uint64_t>(1, files.sum);
  Classes classes = std::move(files.classes);
  const int64_t names = files.bytes();
  const auto source = std::make_shared<PictureSource>(std::move(files.paths), form);
  const int64_t values = table.rows * table.features;
  // A picture that is drawn anew in each epoch cannot be held as it is.
  const bool stays = source->draws() || values > spec.held_bytes_max;
  const int64_t memory_bytes =
      names + table.rows * static_cast<int64_t>(sizeof(int32_t)) + (stays ? 0 : values);
  if (memory_bytes > spec.bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(paths[0], ": ", table.rows, " pictures of ", spec.features, " values need ",
                     memory_bytes, " bytes of memory, want at most ", spec.bytes_max,
                     "; with data.memory what is more than that is read as it is needed"));
  }
  TESSERA_RETURN_IF_ERROR(CheckOneDecodes(*source, table.rows, table.features));
  if (stays) {
    table.values = StoredValues(source);
  } else {
    try {
      TESSERA_ASSIGN_OR_RETURN(
          table.values, Hold(*source, table.rows, table.features, options.threads, &classes));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat(paths[0], ": no memory for ", values,
                                                       " bytes of pictures; set data.memory"));
    }
  }
  table.labels = std::move(classes);
  return table;
}

absl::StatusOr<BadPictures> FindBadPictures(const std::vector<std::string>& paths,
                                            const TableSpec& spec, const ImageOptions& options,
                                            size_t listed_max) {
  TESSERA_ASSIGN_OR_RETURN(const PictureForm form, FormOf(spec, options));
  std::vector<std::string> class_names;
  TESSERA_ASSIGN_OR_RETURN(PictureFiles files, FilesOf(paths, spec, &class_names));
  const auto rows = static_cast<int64_t>(files.paths.size());
  const PictureSource source(std::move(files.paths), form);
  std::vector<std::string> wrong(rows);
  ForRows(rows, options.threads, [&](int64_t row) {
    thread_local std::vector<uint8_t> values;
    values.resize(spec.features);
    // ReadOwn, since Read would hide a broken picture behind the one that stands in for it.
    const absl::Status status =
        source.ReadOwn(static_cast<uint32_t>(row), std::nullopt, values.data());
    if (!status.ok()) wrong[row] = std::string(status.message());
  });
  BadPictures bad;
  for (std::string& message : wrong) {
    if (message.empty()) continue;
    ++bad.count;
    if (bad.messages.size() < listed_max) bad.messages.push_back(std::move(message));
  }
  return bad;
}

ImageOptions ImageOptionsOf(const v1::Data& data) {
  return {data.resize(), data.crop(), std::max(1, static_cast<int>(data.threads()))};
}

namespace {

// The number of class folders.
absl::Status LookAtImages(const std::vector<std::string>& train, const std::vector<std::string>&,
                          RowsLook* look) {
  // Pictures have sizes of their own; this is what they are made.
  constexpr int64_t kSide = 64;
  look->input = {3, kSide, kSide};
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(train[0], error)) {
    const std::string name = each.path().filename().string();
    look->classes += each.is_directory(error) && !absl::StartsWith(name, ".") ? 1 : 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadImageFiles(const TableFiles& files, const TableSpec& spec,
                                     TrainingConventions* conventions) {
  return ReadImages(files.features, spec, ImageOptionsOf(files.data), &conventions->class_names);
}

}  // namespace

// A set of pictures is told by its folders.
extern const FileFormat kImagesFormat = {"images", /*is=*/nullptr, LookAtImages, ReadImageFiles};

}  // namespace tessera

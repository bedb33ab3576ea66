// Pictures made into rows, next to what their decoder alone takes.
//
//   decoding   each file of a folder, from memory, to all of its pixels by libjpeg-turbo (or libpng)
//   rows       the same files read, decoded, scaled and cropped as a worker does: data.resize and data.crop
//   training   the same with a resized_crop, drawn anew in each pass
//
// One thread. All are taken in turns, and the share is that of the decoder's own rate.
#include <dirent.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "worker/data/picture/picture.h"
#include "worker/data/picture_source.h"

namespace tessera {
namespace {

struct Flags {
  std::string folder;
  int64_t resize = 256;
  int64_t crop = 224;
  int repeats = 5;
};

void AddFiles(const std::string& folder, std::vector<std::string>* paths) {
  DIR* const opened = opendir(folder.c_str());
  if (opened == nullptr) return;
  while (const dirent* const entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name[0] == '.') continue;
    const std::string path = folder + "/" + name;
    if (entry->d_type == DT_DIR) {
      AddFiles(path, paths);
    } else {
      paths->push_back(path);
    }
  }
  closedir(opened);
}

std::vector<uint8_t> ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

// Files that are no pictures are left out.
void Run(const Flags& flags) {
  std::vector<std::string> found, paths;
  AddFiles(flags.folder, &found);
  std::sort(found.begin(), found.end());
  std::vector<std::vector<uint8_t>> files;
  std::vector<PictureHeader> headers;
  double pixels = 0;
  for (const std::string& path : found) {
    std::vector<uint8_t> file = ReadBytes(path);
    const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
    Picture picture;
    if (!header.ok() || !DecodePicture(file, *header, 1, &picture).ok()) continue;
    pixels += static_cast<double>(header->height * header->width);
    paths.push_back(path);
    files.push_back(std::move(file));
    headers.push_back(*header);
  }
  TESSERA_CHECK(!paths.empty());
  const auto count = static_cast<double>(paths.size());
  PictureForm form;
  form.resize = flags.resize;
  form.height = form.width = form.crop = flags.crop;
  const PictureSource rows(paths, form);
  v1::Augment augment;
  augment.mutable_resized_crop()->set_size(flags.crop);
  const int64_t input[] = {3, flags.crop, flags.crop};
  form.augmentation = Augmentation(augment, 1, input);
  const PictureSource training(paths, form);

  Picture picture;
  std::vector<uint8_t> row(3 * flags.crop * flags.crop);
  const auto read = [&](const PictureSource& source, std::optional<uint64_t> epoch) {
    for (size_t i = 0; i < paths.size(); ++i) {
      TESSERA_CHECK(source.ReadOwn(static_cast<uint32_t>(i), epoch, row.data()).ok());
    }
  };
  std::vector<double> decoding, reading, drawing;
  for (int repeat = 0; repeat < flags.repeats; ++repeat) {
    decoding.push_back(Seconds([&] {
      for (size_t i = 0; i < files.size(); ++i) {
        TESSERA_CHECK(DecodePicture(files[i], headers[i], 1, &picture).ok());
      }
    }));
    reading.push_back(Seconds([&] { read(rows, std::nullopt); }));
    drawing.push_back(Seconds([&] { read(training, static_cast<uint64_t>(repeat)); }));
  }
  const double own = Median(decoding);
  std::printf("%d pictures, %.0f pixels each on average\n", static_cast<int>(count),
              pixels / count);
  std::printf("decoding  %8.1f pictures/s\n", count / own);
  std::printf("rows      %8.1f pictures/s, %.2f of the decoder's rate\n", count / Median(reading),
              own / Median(reading));
  std::printf("training  %8.1f pictures/s, %.2f of the decoder's rate\n", count / Median(drawing),
              own / Median(drawing));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Pictures made into rows, next to what their decoder alone takes.");
  app.add_option("--folder", flags.folder, "JPEG and PNG files, in folders or not")->required();
  app.add_option("--resize", flags.resize, "as data.resize");
  app.add_option("--crop", flags.crop, "as data.crop");
  app.add_option("--repeats", flags.repeats, "the median of so many is printed")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  tessera::Run(flags);
  return 0;
}

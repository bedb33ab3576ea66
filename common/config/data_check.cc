#include "common/config/data_check.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/config/data_formats.h"
#include "common/config/job_paths.h"
#include "common/config/key_errors.h"
#include "common/config/named_path.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/row_shape.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

int64_t ValuesOf(absl::Span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// The key that only texts have.
constexpr absl::string_view kTokenizer = "tokenizer";
constexpr int64_t kByteTokens = 256;

using Numbers = google::protobuf::RepeatedField<double>;

bool HasImages(const v1::Model& model) { return model.input_size() == 3; }

std::string InputText(const v1::Model& model) {
  return ShapeText(
      absl::MakeConstSpan(model.input().data(), static_cast<size_t>(model.input_size())));
}

class DataChecker {
 public:
  DataChecker(const Positions& positions, JobErrors* errors)
      : positions_(positions), errors_(positions, errors) {}

  void Check(const v1::Job& job) {
    const DataFormat* const format =
        Sound("data.format") ? FindDataFormat(job.data().format()) : nullptr;
    if (format != nullptr) {
      for (const auto& [key, files] : {std::make_pair("data.train", &job.data().train()),
                                       std::make_pair("data.test", &job.data().test())}) {
        Labels(*format, key, *files);
      }
      FormatKeys(*format, job.data());
      Held(*format, job.data());
    }
    Partitioning(job.data());
    if (Sound("model") && job.model().has_tokens()) {
      if (format != nullptr) Tokens(*format, job.data(), job.model().tokens());
      return;
    }
    if (format != nullptr) {
      if (format->is_tokens) return NoTokens(*format, job.model());
      Images(*format, job.model());
      Pictures(*format, job.data(), job.model());
      Augmenting(*format, job.data(), job.model());
    }
    Normalizing(job.data().normalize(), job.model());
    if (format != nullptr && format->stays_sparse) SparseRows(*format, job.data(), job.model());
  }

  void CheckFiles(const v1::Data& data) {
    const DataFormat* const format = Sound("data.format") ? FindDataFormat(data.format()) : nullptr;
    takes_folders_ = format != nullptr && format->is_pictures;
    Directory(data);
    Files(data, "data.train", data.train());
    Files(data, "data.test", data.test());
  }

 private:
  bool Sound(absl::string_view key) const { return errors_.Sound(key); }
  void Fail(absl::string_view key, absl::string_view message) { errors_.Add(key, message); }

  void Labels(const DataFormat& format, absl::string_view key, const v1::DataFiles& files) {
    const std::string labels = absl::StrCat(key, ".labels");
    if (!Sound(key)) return;
    const int64_t count = std::count_if(files.labels().begin(), files.labels().end(),
                                        [](const std::string& file) { return !file.empty(); });
    const bool has_none = count == 0;
    const int wanted = files.features_size();
    if (format.labels_apart && has_none) {
      Fail(labels, absl::StrCat("missing, want a path: ", format.name,
                                " files have their labels in a file of their own"));
    } else if (!format.labels_apart && !has_none) {
      Fail(labels, absl::StrCat(
                       "got ", count == 1 ? Quoted(files.labels(0)) : absl::StrCat(count, " files"),
                       ", want no such key: ", format.name, " files carry their labels"));
    } else if (format.labels_apart && Sound(absl::StrCat(key, ".features")) && count != wanted) {
      Fail(labels, absl::StrCat("got ", count, count == 1 ? " file" : " files", ", want ", wanted,
                                ", one for each of ", key, ".features"));
    }
  }

  // Refuses keys that only another format has.
  void FormatKeys(const DataFormat& format, const v1::Data& data) {
    for (const DataFormat& other : DataFormats()) {
      if (other.own_key.empty() || other.own_key == format.own_key) continue;
      const std::string key = absl::StrCat("data.", other.own_key);
      const auto* const field = data.GetDescriptor()->FindFieldByName(std::string(other.own_key));
      const std::string value = data.GetReflection()->GetString(data, field);
      if (!Sound(key) || value.empty()) continue;
      Fail(key, absl::StrCat("got ", Quoted(value), ", want no such key with data.format ",
                             format.name, ": it is of ", other.name, " files"));
    }
  }

  // A format of tokens beside a model of something else.
  void NoTokens(const DataFormat& format, const v1::Model& model) {
    if (!Sound("model")) return;
    Fail("model.input", absl::StrCat("got ", InputText(model),
                                     ", want {tokens: {vocabulary: ..., context: ...}} "
                                     "with data.format ",
                                     format.name, ": its rows are tokens"));
  }

  // What a model of tokens wants of its data.
  void Tokens(const DataFormat& format, const v1::Data& data, const v1::Tokens& tokens) {
    if (!format.is_tokens) {
      Fail("data.format",
           absl::StrCat("got ", format.name, ", want tokens or text: model.input is tokens"));
      return;
    }
    const std::string why =
        absl::StrCat(" with data.format ", format.name, ": tokens are no quantities");
    const v1::Normalize& normalize = data.normalize();
    if (Sound("data.normalize") && data.has_normalize() &&
        (normalize.per_feature() || !IsOnly(normalize.mean(), 0) ||
         !IsOnly(normalize.stddev(), 1))) {
      Fail("data.normalize", absl::StrCat("got a section, want none", why));
    }
    const v1::Augment& augment = data.augment();
    if (Sound("data.augment") && (!augment.flip().empty() || augment.crop().padding() > 0 ||
                                  augment.resized_crop().size() > 0)) {
      Fail("data.augment", absl::StrCat("got a section, want none", why, ", and rows no images"));
    }
    for (const auto& [key, size] :
         {std::make_pair("data.resize", data.resize()), std::make_pair("data.crop", data.crop())}) {
      if (!Sound(key) || size == 0) continue;
      Fail(key, absl::StrCat("got ", size, ", want no such key with data.format ", format.name,
                             ": it is of files that are pictures"));
    }
    if (format.own_key != kTokenizer || !Sound("data.tokenizer")) return;
    if (data.tokenizer() == "bytes" && tokens.vocabulary() < kByteTokens) {
      Fail("model.input.tokens.vocabulary",
           absl::StrCat("got ", tokens.vocabulary(), ", want at least ", kByteTokens,
                        " with data.tokenizer bytes: each byte is a token"));
    }
    if (data.tokenizer() != "bytes" && Sound("data.partition") && data.partition() == "local") {
      Fail("data.tokenizer",
           "got characters with data.partition local, want bytes: no worker sees the others' "
           "characters, and each would number its own");
    }
  }

  void Images(const DataFormat& format, const v1::Model& model) {
    if (!Sound("model") || format.row_sizes.empty()) return;
    const absl::Span<const int64_t> input(model.input().data(),
                                          static_cast<size_t>(model.input_size()));
    const std::string row = ShapeText(format.row_sizes);
    const int64_t values = ValuesOf(input);
    if (values != ValuesOf(format.row_sizes)) {
      Fail("model.input", absl::StrCat("got ", values, values == 1 ? " value" : " values",
                                       ", want ", ValuesOf(format.row_sizes), " with data.format ",
                                       format.name, ", as ", row));
    } else if (!IsSameOrder(format.row_sizes, input)) {
      Fail("model.input",
           absl::StrCat("got ", ShapeText(input), ", want ", row, " with data.format ", format.name,
                        ", or that flattened: its values lie in that order"));
    }
  }

  // data.resize and data.crop, and what they make of a picture beside model.input.
  void Pictures(const DataFormat& format, const v1::Data& data, const v1::Model& model) {
    if (!Sound("data.resize") || !Sound("data.crop")) return;
    if (!format.is_pictures) {
      const std::string why = absl::StrCat(", want no such key with data.format ", format.name,
                                           ": it is of files that are pictures");
      if (data.resize() != 0) Fail("data.resize", absl::StrCat("got ", data.resize(), why));
      if (data.crop() != 0) Fail("data.crop", absl::StrCat("got ", data.crop(), why));
      return;
    }
    if (!Sound("model")) return;
    if (!HasImages(model) || (model.input(0) != 1 && model.input(0) != 3)) {
      Fail("model.input", absl::StrCat("got ", InputText(model),
                                       ", want [3, height, width], or "
                                       "[1, height, width] for grey, with data.format ",
                                       format.name));
      return;
    }
    if (data.normalize().per_feature() && Sound("data.normalize")) {
      Fail("data.normalize.per_feature",
           absl::StrCat("got true, want mean and stddev, one number or one for each channel, with "
                        "data.format ",
                        format.name));
    }
    const int64_t height = model.input(1), width = model.input(2);
    const int64_t crop = data.crop(), resize = data.resize();
    if (crop != 0 && (height != crop || width != crop)) {
      Fail("data.crop", absl::StrCat("got ", crop, ", want the height and width of model.input ",
                                     InputText(model), ", which are then equal"));
    } else if (crop != 0 && resize != 0 && resize < crop) {
      Fail("data.resize",
           absl::StrCat("got ", resize, ", want at least data.crop, which is ", crop));
    } else if (crop == 0 && resize != 0 && resize != std::min(height, width)) {
      Fail("data.resize",
           absl::StrCat("got ", resize, ", want ", std::min(height, width),
                        ", the shorter side of model.input ", InputText(model), ", or data.crop"));
    }
  }

  // data.memory and data.threads.
  void Held(const DataFormat& format, const v1::Data& data) {
    if (!Sound("data.memory") || !Sound("data.threads")) return;
    if (data.memory() != 0 && !format.reads_in_place) {
      Fail("data.memory",
           absl::StrCat("got ", data.memory(), ", want no such key with data.format ", format.name,
                        ": its rows are always held"));
    } else if (data.memory() == 0 && !format.is_pictures && data.threads() != 1) {
      Fail("data.threads", absl::StrCat("got ", data.threads(),
                                        ", want data.memory beside it: all rows are held, and "
                                        "nothing is read ahead"));
    }
  }

  void Augmenting(const DataFormat& format, const v1::Data& data, const v1::Model& model) {
    if (!Sound("data.augment") || !Sound("model")) return;
    const v1::Augment& augment = data.augment();
    const v1::ResizedCrop& resized = augment.resized_crop();
    if (resized.size() == 0 && resized.scale_size() + resized.ratio_size() > 0) {
      Fail("data.augment.resized_crop.size", "missing, want the size beside scale or ratio");
    }
    const bool crops = augment.crop().padding() > 0, resizes = resized.size() > 0;
    if (augment.flip().empty() && !crops && !resizes) return;
    if (format.has_entries) {
      Fail("data.augment", absl::StrCat("got a section, want none with data.format ", format.name,
                                        ": its rows are no images"));
      return;
    }
    if (!HasImages(model)) {
      Fail("data.augment", absl::StrCat("got a section, want none: model.input ", InputText(model),
                                        " is no image, which is [channels, height, width]"));
      return;
    }
    if (!resizes) return;
    if (crops) {
      Fail("data.augment.crop", "got a section beside resized_crop, want one or the other");
    }
    if (model.input(1) != resized.size() || model.input(2) != resized.size()) {
      Fail("data.augment.resized_crop.size",
           absl::StrCat("got ", resized.size(), ", want the height and width of model.input ",
                        InputText(model), ", which are then equal"));
    }
    Ascending("data.augment.resized_crop.scale", resized.scale());
    Ascending("data.augment.resized_crop.ratio", resized.ratio());
  }

  void Ascending(absl::string_view key, const Numbers& least_and_most) {
    if (least_and_most.size() != 2 || least_and_most[0] <= least_and_most[1]) return;
    Fail(key, absl::StrCat("got ", least_and_most[0], " and ", least_and_most[1],
                           ", want the least first and then the largest"));
  }

  void Normalizing(const v1::Normalize& normalize, const v1::Model& model) {
    if (!Sound("data.normalize")) return;
    if (!normalize.per_feature()) {
      OneForEachChannel("data.normalize.mean", normalize.mean(), model);
      OneForEachChannel("data.normalize.stddev", normalize.stddev(), model);
      return;
    }
    if (IsOnly(normalize.mean(), 0) && IsOnly(normalize.stddev(), 1)) return;
    Fail("data.normalize.per_feature",
         "got true beside mean or stddev, want one or the other: each feature has its own");
  }

  static bool IsOnly(const Numbers& numbers, double number) {
    return numbers.size() == 1 && numbers[0] == number;
  }

  void OneForEachChannel(absl::string_view key, const Numbers& numbers, const v1::Model& model) {
    if (!Sound("model") || numbers.size() <= 1) return;
    if (!HasImages(model)) {
      Fail(key, absl::StrCat("got ", numbers.size(), " numbers, want one: model.input ",
                             InputText(model), " has no channels; per_feature is for each value"));
    } else if (numbers.size() != model.input(0)) {
      Fail(key, absl::StrCat("got ", numbers.size(), " numbers, want one, or ", model.input(0),
                             ", one for each channel of model.input ", InputText(model)));
    }
  }

  // A value that a sparse row does not have is 0. Nothing before the first product may change that, or all values would
  // have to be written out.
  void SparseRows(const DataFormat& format, const v1::Data& data, const v1::Model& model) {
    if (Sound("data.normalize")) {
      const v1::Normalize& normalize = data.normalize();
      const std::string why =
          absl::StrCat(" with data.format ", format.name, ": the rows of ", format.name,
                       " files stay sparse, so that zeros stay zeros; stddev may be set");
      if (normalize.per_feature()) {
        Fail("data.normalize.per_feature", absl::StrCat("got true, want false", why));
      } else if (!IsOnly(normalize.mean(), 0)) {
        Fail("data.normalize.mean",
             absl::StrCat("got ", absl::StrJoin(normalize.mean(), ", "), ", want 0", why));
      }
    }
    if (!Sound("model.layers") || model.layers().empty() || ReadsSparse(model)) return;
    Fail("model.layers.0",
         absl::StrCat("got ", LayerName(model.layers(0)), ", want linear first with data.format ",
                      format.name, ": no other layer reads sparse rows"));
  }

  void Partitioning(const v1::Data& data) {
    if (!Sound("data.partition") || !Sound("data.normalize")) return;
    if (data.partition() != "local" || !data.normalize().per_feature()) return;
    Fail("data.normalize.per_feature",
         "got true with data.partition local, want mean and stddev: each worker would normalise "
         "its own rows differently");
  }

  void File(const v1::Data& data, const std::string& key, const std::string& file) {
    if (!Sound(key) || file.empty()) return;
    const bool needs_directory = file[0] != '/';
    if (needs_directory && !directory_is_there_) return;
    const std::string path = DataPath(data, file);
    if (takes_folders_ && WhyNoFolder(path).empty()) return;
    const std::string reason = WhyNoFile(path);
    if (reason.empty()) return;
    Fail(key,
         absl::StrCat("got ", Quoted(file), ", want a file ", takes_folders_ ? "or folder " : "",
                      "that can be read; ", path, ": ", reason));
  }

  void Files(const v1::Data& data, const std::string& key, const v1::DataFiles& files) {
    FileList(data, key + ".features", files.features());
    FileList(data, key + ".labels", files.labels());
  }

  void FileList(const v1::Data& data, const std::string& key,
                const google::protobuf::RepeatedPtrField<std::string>& files) {
    // The list's own position is taken where an item has none: a list of one may be written without brackets.
    for (int i = 0; i < files.size(); ++i) {
      const std::string item = absl::StrCat(key, ".", i);
      File(data, positions_.count(item) ? item : key, files[i]);
    }
  }

  void Directory(const v1::Data& data) {
    const std::string reason = WhyNoFolder(data.directory());
    const auto relative = [](const std::string& file) { return file.empty() || file[0] != '/'; };
    const auto& train = data.train().features();
    const auto& test = data.test().features();
    const bool used = std::any_of(train.begin(), train.end(), relative) ||
                      std::any_of(test.begin(), test.end(), relative);
    directory_is_there_ = reason.empty();
    if (directory_is_there_ || !used || !Sound("data.directory")) return;
    Fail("data.directory",
         absl::StrCat("got ", Quoted(data.directory()),
                      ", want a directory with the data (--set data.directory=DIR); fetch_data.sh "
                      "--list names the sets that it gets; ",
                      data.directory(), ": ", reason));
  }

  const Positions& positions_;
  KeyErrors errors_;
  bool directory_is_there_ = false;
  // Files may be named by their folder.
  bool takes_folders_ = false;
};

}  // namespace

void CheckData(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  if (IsOfTensors(job.model())) return;  // The workers read data of their own.
  DataChecker(positions, errors).Check(job);
}

void CheckDataFiles(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  if (IsOfTensors(job.model())) return;
  DataChecker(positions, errors).CheckFiles(job.data());
}

}  // namespace tessera

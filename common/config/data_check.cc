#include "common/config/data_check.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/config/data_formats.h"
#include "common/config/job_paths.h"
#include "common/config/key_errors.h"
#include "common/config/named_path.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/row_shape.h"

namespace tessera {
namespace {

int64_t ValuesOf(absl::Span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
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
        OneFile(*format, key, *files);
      }
      FormatKeys(*format, job.data());
      Images(*format, job.model());
    }
    Normalizing(job.data().normalize());
    Partitioning(job.data());
    if (format != nullptr && format->stays_sparse) SparseRows(*format, job.data(), job.model());
  }

  void CheckFiles(const v1::Data& data) {
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
    if (format.labels_apart && files.labels().empty()) {
      Fail(labels, absl::StrCat("missing, want a path: ", format.name,
                                " files have their labels in a file of their own"));
    } else if (!format.labels_apart && !files.labels().empty()) {
      Fail(labels, absl::StrCat("got ", Quoted(files.labels()), ", want no such key: ", format.name,
                                " files carry their labels"));
    }
  }

  void OneFile(const DataFormat& format, absl::string_view key, const v1::DataFiles& files) {
    const std::string features = absl::StrCat(key, ".features");
    if (!Sound(features) || files.features_size() < 2 || !format.labels_apart) return;
    Fail(features, absl::StrCat("got ", files.features_size(), " files, want one: the labels of ",
                                format.name, " are in one file, too"));
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

  void Normalizing(const v1::Normalize& normalize) {
    if (!Sound("data.normalize") || !normalize.per_feature()) return;
    if (normalize.mean(0) == 0 && normalize.stddev(0) == 1) return;
    Fail("data.normalize.per_feature",
         "got true beside mean or stddev, want one or the other: each feature has its own");
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
      } else if (normalize.mean(0) != 0) {
        Fail("data.normalize.mean", absl::StrCat("got ", normalize.mean(0), ", want 0", why));
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
    const std::string reason = WhyNoFile(path);
    if (reason.empty()) return;
    Fail(key, absl::StrCat("got ", Quoted(file), ", want a file that can be read; ", path, ": ",
                           reason));
  }

  void Files(const v1::Data& data, const std::string& key, const v1::DataFiles& files) {
    // The file's own position is taken where an item has none: a list of one may be written without brackets.
    for (int i = 0; i < files.features_size(); ++i) {
      const std::string item = absl::StrCat(key, ".features.", i);
      File(data, positions_.count(item) ? item : key + ".features", files.features(i));
    }
    File(data, key + ".labels", files.labels());
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
         absl::StrCat(
             "got ", Quoted(data.directory()),
             ", want a directory with the data (--set data.directory=DIR); fetch_data.sh gets "
             "public sets; ",
             data.directory(), ": ", reason));
  }

  const Positions& positions_;
  KeyErrors errors_;
  bool directory_is_there_ = false;
};

}  // namespace

void CheckData(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  DataChecker(positions, errors).Check(job);
}

void CheckDataFiles(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  DataChecker(positions, errors).CheckFiles(job.data());
}

}  // namespace tessera

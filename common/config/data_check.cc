#include "common/config/data_check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/job_paths.h"
#include "common/config/named_path.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/row_shape.h"

namespace tessera {
namespace {

// Of an image of the cifar format, which is red, green and blue.
constexpr int64_t kCifarRow[] = {3, 32, 32};
constexpr int64_t kCifarValues = 3 * 32 * 32;

class DataChecker {
 public:
  DataChecker(const Positions& positions, JobErrors* errors)
      : positions_(positions), errors_(*errors) {}

  void Check(const v1::Job& job) {
    for (const auto& [key, files] : {std::make_pair("data.train", &job.data().train()),
                                     std::make_pair("data.test", &job.data().test())}) {
      Labels(job.data(), key, *files);
      OneFile(job.data(), key, *files);
    }
    FormatKeys(job.data());
    Images(job);
    Normalizing(job.data().normalize());
    Partitioning(job.data());
    SparseRows(job.data(), job.model());
  }

  void CheckFiles(const v1::Data& data) {
    Directory(data);
    Files(data, "data.train", data.train());
    Files(data, "data.test", data.test());
  }

 private:
  // Nothing is wrong with `key` so far.
  bool Sound(absl::string_view key) const { return !errors_.Touches(key); }

  void Fail(absl::string_view key, absl::string_view message) {
    errors_.Add(PositionOf(positions_, key), key, message);
  }

  void Labels(const v1::Data& data, absl::string_view key, const v1::DataFiles& files) {
    const std::string labels = absl::StrCat(key, ".labels");
    if (!Sound("data.format") || !Sound(key)) return;
    const bool apart = data.format() == "idx" || data.format() == "npy";
    if (apart && files.labels().empty()) {
      Fail(labels, absl::StrCat("missing, want a path: ", data.format(),
                                " files have their labels in a file of their own"));
    } else if (!apart && !files.labels().empty()) {
      Fail(labels, absl::StrCat("got ", Quoted(files.labels()), ", want no such key: ",
                                data.format(), " files carry their labels"));
    }
  }

  void OneFile(const v1::Data& data, absl::string_view key, const v1::DataFiles& files) {
    const std::string features = absl::StrCat(key, ".features");
    if (!Sound("data.format") || !Sound(features) || files.features_size() < 2) return;
    if (data.format() != "idx" && data.format() != "npy") return;
    Fail(features, absl::StrCat("got ", files.features_size(), " files, want one: the labels of ",
                                data.format(), " are in one file, too"));
  }

  // Keys that say more of one format.
  void FormatKeys(const v1::Data& data) {
    if (!Sound("data.format")) return;
    for (const auto& [key, value, format] :
         {std::make_tuple("data.label_column", &data.label_column(), "csv"),
          std::make_tuple("data.labels", &data.labels(), "cifar")}) {
      if (!Sound(key) || value->empty() || data.format() == format) continue;
      Fail(key, absl::StrCat("got ", Quoted(*value), ", want no such key with data.format ",
                             data.format(), ": it is of ", format, " files"));
    }
  }

  void Images(const v1::Job& job) {
    if (!Sound("data.format") || !Sound("model") || job.data().format() != "cifar") return;
    const auto& input = job.model().input();
    int64_t values = 1;
    for (const int64_t size : input) values *= size;
    if (values != kCifarValues) {
      Fail("model.input",
           absl::StrCat("got ", values, values == 1 ? " value" : " values", ", want ", kCifarValues,
                        " with data.format cifar, as [3, 32, 32]"));
    } else if (!IsSameOrder(kCifarRow, {input.data(), static_cast<size_t>(input.size())})) {
      Fail("model.input",
           absl::StrCat("got ", ShapeText({input.data(), static_cast<size_t>(input.size())}),
                        ", want [3, 32, 32] with data.format cifar, or that flattened: "
                        "its values lie in that order"));
    }
  }

  void Normalizing(const v1::Normalize& normalize) {
    if (!Sound("data.normalize") || !normalize.per_feature()) return;
    if (normalize.mean() == 0 && normalize.stddev() == 1) return;
    Fail("data.normalize.per_feature",
         "got true beside mean or stddev, want one or the other: each feature has its own");
  }

  // Rows that stay sparse: what is not written is 0 and nothing before the first product may change
  // that, or all of it would have to be written out.
  void SparseRows(const v1::Data& data, const v1::Model& model) {
    if (!Sound("data.format") || data.format() != "xc") return;
    if (Sound("data.normalize")) {
      const v1::Normalize& normalize = data.normalize();
      const absl::string_view why =
          ": the rows of xc files stay sparse, so that zeros stay zeros; ";
      if (normalize.per_feature()) {
        Fail("data.normalize.per_feature",
             absl::StrCat("got true, want false with data.format xc", why, "stddev may be set"));
      } else if (normalize.mean() != 0) {
        Fail("data.normalize.mean",
             absl::StrCat("got ", normalize.mean(), ", want 0 with data.format xc", why,
                          "stddev may be set"));
      }
    }
    if (!Sound("model.layers") || model.layers().empty() || ReadsSparse(model)) return;
    Fail("model.layers.0",
         absl::StrCat("got ", LayerName(model.layers(0)),
                      ", want linear first with data.format xc: no other layer reads sparse rows"));
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
    // A list of one may be written without brackets: then its item has no position of its own.
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
  JobErrors& errors_;
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

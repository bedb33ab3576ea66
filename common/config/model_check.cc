#include "common/config/model_check.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/config/data_formats.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/losses.h"
#include "common/layout/parameters.h"
#include "common/layout/tensor_groups.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

// The product of model.input.
constexpr int64_t kFeaturesMax = int64_t{1} << 24;

class ModelChecker {
 public:
  ModelChecker(const Positions& positions, const v1::Job& job, JobErrors* errors)
      : positions_(positions), job_(job), model_(job.model()), errors_(*errors) {}

  void Check() {
    if (!Sound("model")) return;
    if (IsOfTensors(model_)) return Groups();
    int64_t features = 1;
    for (const int64_t extent : model_.input()) {
      if (__builtin_mul_overflow(features, extent, &features) || features > kFeaturesMax) {
        Fail("model.input",
             absl::StrCat("got a product above ", kFeaturesMax, ", want at most that many"));
        return;
      }
    }
    const absl::StatusOr<ModelShape> shape = ShapeOf(model_);
    if (!shape.ok()) return FailAtLayer(shape.status().message());
    if (model_.has_tokens() && model_.loss() != kSoftmax) {
      Fail("model.loss", absl::StrCat("got ", model_.loss(), ", want ", kSoftmax,
                                      ": a model of tokens predicts the next one in each place"));
    }
    if (model_.loss() == kSoftmax && shape->outputs() < 2) {
      Fail("model.layers",
           "got 1 output, want at least 2: softmax over one is always 1; for two classes in one "
           "output use sigmoid_cross_entropy");
    }
    if (model_.label_smoothing() != 0 && model_.loss() != kSoftmax) {
      Fail("model.label_smoothing", absl::StrCat("got ", model_.label_smoothing(), ", want 0 with ",
                                                 model_.loss(), ": it is for ", kSoftmax));
    }
    if (LearnsNumbers(model_, shape->outputs())) Numbers();
    Statistics(*shape);
  }

 private:
  bool Sound(absl::string_view key) const { return !errors_.Touches(key); }
  void Fail(absl::string_view key, absl::string_view message) {
    errors_.Add(PositionOf(positions_, key), key, message);
  }

  // What subnets cut of a job of tensors. Where the file is not there yet whoever reads it finds out.
  void Groups() {
    const absl::StatusOr<std::vector<ParameterSpec>> parameters =
        ParametersOf(model_.tensor_layout());
    if (!parameters.ok()) return;
    for (const TensorGroupFault& fault : FaultsOfGroups(model_, *parameters)) {
      std::string key = "model.groups";
      if (!fault.group.empty()) key = KeyPath(key, fault.group);
      if (fault.place >= 0) absl::StrAppend(&key, ".", fault.place);
      Fail(key, fault.message);
    }
  }

  // ShapeOf says which layer or key it is about.
  void FailAtLayer(absl::string_view message) {
    absl::string_view rest = message;
    if (absl::ConsumePrefix(&rest, "model.layers[")) {
      const size_t end = rest.find("]: ");
      // "4].residual.layers[0" is the key 4.residual.layers.0.
      const std::string key = absl::StrReplaceAll(rest.substr(0, end), {{"]", ""}, {"[", "."}});
      return Fail(absl::StrCat("model.layers.", key), rest.substr(end + 3));
    }
    for (const absl::string_view key : {"model.input", "model.layers"}) {
      if (absl::ConsumePrefix(&rest, absl::StrCat(key, ": "))) return Fail(key, rest);
    }
    Fail("model", message);
  }

  // The model's only output is to come close to a number, so that rows have no classes.
  void Numbers() {
    const DataFormat* const format =
        Sound("data.format") ? FindDataFormat(job_.data().format()) : nullptr;
    if (format != nullptr && !format->number_labels) {
      Fail("model.loss",
           absl::StrCat("got ", kSquares, " with 1 output and data.format ", format->name,
                        ", whose labels are classes, want a format whose labels may be numbers "
                        "(csv, npy, libsvm), or more outputs"));
    }
    const double target = job_.train().target_accuracy();
    if (!Sound("train.target_accuracy") || target == 0) return;
    Fail("train.target_accuracy", absl::StrCat("got ", target, ", want 0 with ", kSquares,
                                               " and 1 output: a number is not right or wrong"));
  }

  // A layer that takes the statistics of a minibatch needs two rows of it. The places of an image are rows, too.
  void Statistics(const ModelShape& shape) {
    if (!Sound("train.batch_size")) return;
    std::string
        over_rows_alone;  // the last such layer whose minibatch has no other rows than its examples
    for (int i = 0; i < static_cast<int>(shape.layers.size()); ++i) {
      const ModelLayer& layer = shape.layers[static_cast<size_t>(i)];
      if (layer.kind->calibrates() && shape.before(i).positions() == 1) {
        over_rows_alone = LayerName(layer.settings);
      }
    }
    if (over_rows_alone.empty()) return;
    const std::string why =
        absl::StrCat(over_rows_alone, " makes every activation of a single row 0");
    const int64_t rows = job_.train().batch_size();
    if (rows == 1) Fail("train.batch_size", absl::StrCat("got 1, want at least 2: ", why));
    if (!Sound("train.micro_batch")) return;
    const int64_t piece = job_.train().micro_batch();
    if (piece > 0 && piece < rows && (piece == 1 || rows % piece == 1)) {
      Fail("train.micro_batch", absl::StrCat("got ", piece, ", which leaves a piece of 1 row of ",
                                             rows, ", want at least 2 in each: ", why));
    }
  }

  const Positions& positions_;
  const v1::Job& job_;
  const v1::Model& model_;
  JobErrors& errors_;
};

}  // namespace

void CheckModel(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  ModelChecker(positions, job, errors).Check();
}

}  // namespace tessera

// Jobs whose model is a file of tensors.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/initial_file.h"
#include "common/checkpoint/safetensors_writer.h"
#include "common/config/job_difference.h"
#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/config/tensor_file.h"
#include "common/layout/parameters.h"
#include "common/layout/tensor_layout.h"
#include "common/method/recipe.h"

namespace tessera {
namespace {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  float value = 0.5f;  // of each entry, of f32
};

std::string PathOf(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string Write(const std::string& name, const std::vector<Tensor>& tensors) {
  const std::string path = PathOf(name);
  std::vector<TensorSpec> specs;
  for (const Tensor& each : tensors) specs.push_back({each.name, each.dtype, each.shape});
  auto writer = SafetensorsWriter::Create(path, specs, {});
  REQUIRE(writer.ok());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = static_cast<size_t>(specs[i].bytes());
    if (tensors[i].dtype == "F32") {
      const std::vector<float> values(bytes / sizeof(float), tensors[i].value);
      REQUIRE((*writer)->Append(values.data(), static_cast<int64_t>(bytes)).ok());
    } else {
      const std::string zeros(bytes, '\0');
      REQUIRE((*writer)->Append(zeros.data(), static_cast<int64_t>(bytes)).ok());
    }
  }
  REQUIRE((*writer)->Finish().ok());
  return path;
}

const std::vector<Tensor> kTensors = {
    {"fc.weight", {3, 4}}, {"fc.bias", {3}}, {"conv.weight", {2, 3, 5, 5}}, {"scale", {}}};

std::string JobOf(const std::string& file, const std::string& more = "") {
  return absl::StrCat(
      "name: own\nmodel:\n  tensors: ", file,
      "\ntrain: {steps: 100, optimizer: {sgd: {learning_rate: 0.1}}}\nmethod: data_parallel\n",
      more);
}

JobReading Reading(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return ReadJob({text, "x.yaml", "/jobs", overrides}, {/*check_files=*/true});
}

v1::Job Good(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const JobReading reading = Reading(text, overrides);
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return reading.job;
}

// All errors, with `path` as F.
std::string Errors(const std::string& text, const std::string& path,
                   const std::vector<std::string>& overrides = {}) {
  // The first time it is quoted, and cut where it is long.
  return absl::StrReplaceAll(FormatJobErrors(Reading(text, overrides).errors),
                             {{Quoted(path), "\"F\""}, {path, "F"}});
}

}  // namespace

TEST_CASE("a job of tensors has its parameters from the file, in the order of their names",
          "[tensors]") {
  const v1::Job job = Good(JobOf(Write("order.safetensors", kTensors)));
  const v1::TensorLayout& layout = job.model().tensor_layout();
  REQUIRE(layout.tensors_size() == 4);
  CHECK(layout.tensors(0).name() == "conv.weight");
  CHECK(layout.tensors(1).name() == "fc.bias");
  CHECK(layout.tensors(2).name() == "fc.weight");
  CHECK(layout.tensors(3).name() == "scale");
  CHECK(layout.tensors(0).dims_size() == 4);
  CHECK(layout.tensors(3).dims_size() == 0);
  CHECK(layout.sum() != 0);
  CHECK(job.model().evaluation() == "maximise");
  CHECK_FALSE(job.has_data());
  CHECK((job.model().loss().empty() && job.train().precision().empty()));
  CHECK((job.train().batch_size() == 0 && job.train().steps_per_epoch() == 0));
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  REQUIRE(shape.ok());
  CHECK(shape->size == 12 + 3 + 150 + 1);
}

TEST_CASE("the digest is of the file's content, wherever it lies and however it is written",
          "[tensors]") {
  const std::string path = Write("digest.safetensors", kTensors);
  const v1::Job job = Good(JobOf(path));
  const std::vector<Tensor> turned = {kTensors[3], kTensors[1], kTensors[2], kTensors[0]};
  CHECK(JobDigest(Good(JobOf(Write("turned.safetensors", turned)))) == JobDigest(job));
  std::vector<Tensor> other = kTensors;
  other[1].value = 0.25f;
  const v1::Job of_values = Good(JobOf(Write("values.safetensors", other)));
  CHECK(JobDigest(of_values) != JobDigest(job));
  other = kTensors;
  other[0].shape = {4, 3};
  const v1::Job of_shapes = Good(JobOf(Write("shapes.safetensors", other)));
  CHECK(JobDigest(of_shapes) != JobDigest(job));
  CHECK(CanonicalJobText(job).find("digest.safetensors") == std::string::npos);
  // What differs is told by key.
  const auto differing = [&job](const v1::Job& than) {
    std::string keys;
    for (const KeyDifference& each : DifferencesOf(JobTextToSend(than), JobTextToSend(job))) {
      absl::StrAppend(&keys, each.key, " ");
    }
    return keys;
  };
  CHECK(differing(of_values) == "model.tensor_layout.sum ");
  CHECK(differing(of_shapes) == "model.tensor_layout.shapes model.tensor_layout.sum ");
  // A file that is written anew at the same place is read anew.
  Write("digest.safetensors", other);
  CHECK(JobDigest(Good(JobOf(path))) == JobDigest(of_shapes));
}

TEST_CASE("keys that are the workers' business have no line in the digest", "[tensors]") {
  const v1::Job job = Good(JobOf(Write("lines.safetensors", kTensors)));
  const std::string text = CanonicalJobText(job);
  for (const char* key : {"data.", "model.loss", "model.label_smoothing", "train.batch_size",
                          "train.micro_batch", "train.precision", "train.clip_norm"}) {
    INFO(key);
    CHECK(text.find(absl::StrCat("\n", key)) == std::string::npos);
  }
  for (const char* line : {"\nmodel.evaluation=\"maximise\"\n", "\ntrain.steps_per_epoch=0\n",
                           "\nmodel.tensor_layout.shapes=\"4 tensors, 166 entries, "}) {
    INFO(line);
    CHECK(text.find(line) != std::string::npos);
  }
  const v1::Job back = JobOfText(text);
  CHECK(IsOfTensors(back.model()));
  CHECK(back.model().tensor_layout().sum() == job.model().tensor_layout().sum());
  CHECK(RecipeFor(back).ok());
}

TEST_CASE("a printed job of tensors reads back to the same job", "[tensors]") {
  const v1::Job job = Good(JobOf(Write("printed.safetensors", kTensors)),
                           {"model.evaluation=minimise", "train.steps_per_epoch=10"});
  const std::string text = PrintJob(job);
  INFO(text);
  CHECK(text.find("tensor_layout") == std::string::npos);
  CHECK(text.find("batch_size") == std::string::npos);
  const v1::Job back = Good(text);
  CHECK(back.SerializeAsString() == job.SerializeAsString());
  CHECK(JobDigest(back) == JobDigest(job));
}

TEST_CASE("keys of the other kind of job are refused, all at once", "[tensors]") {
  const std::string path = Write("keys.safetensors", kTensors);
  const std::string text = absl::StrCat(
      "name: own\nseed: 1\ndata: {format: idx}\nmodel:\n  tensors: ", path,
      "\n  input: [3]\n  layers: [relu]\n  loss: mean_squared_error\n  init: a\ntrain:\n"
      "  batch_size: 4\n  epochs: 2\n  precision: f32\n  micro_batch: 1\n  optimizer: {sgd: "
      "{learning_rate: 1}}\nmethod: data_parallel\n");
  const std::string why =
      ": got a value beside model.tensors, want no such key: layers, data and minibatches are then "
      "the workers' own\n";
  CHECK(Errors(text, path) ==
        "x.yaml:3:1: data" + why + "x.yaml:6:3: model.input" + why + "x.yaml:7:3: model.layers" +
            why + "x.yaml:8:3: model.loss" + why + "x.yaml:9:3: model.init" + why +
            "x.yaml:10:1: train: missing a key, want steps\n" + "x.yaml:11:3: train.batch_size" +
            why + "x.yaml:12:3: train.epochs" + why + "x.yaml:13:3: train.precision" + why +
            "x.yaml:14:3: train.micro_batch" + why);
  const std::string of_layers =
      "name: a\ndata: {format: csv, train: {features: a}, test: {features: b}}\nmodel: {input: "
      "[2], "
      "layers: [{linear: {units: 2}}]}\ntrain: {batch_size: 1, epochs: 1, steps_per_epoch: 3, "
      "optimizer: {sgd: {learning_rate: 1}}}\nmethod: data_parallel\n";
  const JobReading reading = ReadJob({of_layers, "x.yaml", "/jobs", {"model.evaluation=minimise"}},
                                     {/*check_files=*/false});
  const std::string without =
      ": got a value without model.tensors, want no such key: it is for jobs of tensors "
      "(docs/own_models.md)\n";
  CHECK(FormatJobErrors(reading.errors) ==
        "x.yaml:4:35: train.steps_per_epoch" + without + "--set model.evaluation" + without);
}

TEST_CASE("steps are required, and the layout cannot be written", "[tensors]") {
  const std::string path = Write("steps.safetensors", kTensors);
  CHECK(Errors(JobOf(path), path, {"train.steps="}).find("want steps") != std::string::npos);
  CHECK(Errors(JobOf(path), path, {"model.tensor_layout.sum=1"}).find("unknown key") !=
        std::string::npos);
}

TEST_CASE("methods that need layers are refused with a job of tensors", "[tensors]") {
  const std::string path = Write("methods.safetensors", kTensors);
  for (const char* method :
       {"data_parallel", "local_sgd", "diloco", "async_sgd", "{softsync: {pushes: 2}}", "ssp",
        "quant_dp", "slim_dp", "{decentralized: {}}"}) {
    INFO(method);
    const v1::Job job =
        Good(JobOf(path), {absl::StrCat("method=", method), "cluster={servers: 2, workers: 2}"});
    CHECK(RecipeFor(job).ok());
  }
  for (const auto& [method, why] : {std::pair{"layer_separation", "a job of tensors has none"}}) {
    const std::string errors =
        Errors(JobOf(path), path, {absl::StrCat("method=", method), "cluster.workers=2"});
    INFO(errors);
    CHECK(errors.find(absl::StrCat("--set method: got ", method,
                                   " beside model.tensors, want another method: ")) == 0);
    CHECK(errors.find(why) != std::string::npos);
    CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
  }
}

constexpr char kGroups[] =
    "model.groups={b: [[fc.weight, 0], [fc.bias, 0]], a-1: [[conv.weight, 1]]}";

TEST_CASE("groups name dimensions of tensors, in the order of the groups' names", "[tensors]") {
  const std::string path = Write("groups.safetensors", kTensors);
  const std::vector<std::string> ist = {"method=ist", "cluster.workers=3"};
  const auto with = [&](const std::string& groups) {
    return Good(JobOf(path), {ist[0], ist[1], groups});
  };
  const v1::Job job = with(kGroups);
  REQUIRE(job.model().groups_size() == 2);
  CHECK(job.model().groups(0).name() == "a-1");
  CHECK(job.model().groups(1).name() == "b");
  REQUIRE(job.model().groups(1).dimensions_size() == 2);
  CHECK(job.model().groups(1).dimensions(1).tensor() == "fc.bias");
  CHECK(job.model().groups(0).dimensions(0).dimension() == 1);
  CHECK(RecipeFor(job)->subnets);
  // The digest has them, in whichever order they are written.
  const std::string turned =
      "model.groups={a-1: [[conv.weight, 1]], b: [[fc.weight, 0], [fc.bias, 0]]}";
  CHECK(JobDigest(with(turned)) == JobDigest(job));
  CHECK(JobDigest(with("model.groups={a: [[conv.weight, 1]]}")) != JobDigest(job));
  const std::string text = PrintJob(job);
  CHECK(text.find(
            "  groups:\n    a-1: [[conv.weight, 1]]\n    b: [[fc.weight, 0], [fc.bias, 0]]\n") !=
        std::string::npos);
  CHECK(Good(text).SerializeAsString() == job.SerializeAsString());
  CHECK(JobOfText(CanonicalJobText(job)).model().groups(1).dimensions(1).tensor() == "fc.bias");
  // One group of the file's may be replaced alone.
  const v1::Job replaced = Good(text, {"model.groups.b=[[fc.bias, 0]]"});
  CHECK(replaced.model().groups(1).dimensions_size() == 1);
  CHECK(replaced.model().groups(0).dimensions_size() == 1);
}

TEST_CASE("methods of subnets want groups with a unit for each worker", "[tensors]") {
  const std::string path = Write("grouped.safetensors", kTensors);
  for (const char* method : {"ist", "ensemble"}) {
    const std::string of = absl::StrCat("method=", method);
    std::string errors = Errors(JobOf(path), path, {of, "cluster.workers=2"});
    CHECK(errors.find("model.groups: missing, want at least one group") != std::string::npos);
    errors = Errors(JobOf(path), path, {of, "cluster.workers=4", kGroups});
    INFO(errors);
    CHECK(errors.find("cluster.workers: got 4, want at most 3, the units of the smallest group") !=
          std::string::npos);
  }
  // Other methods pass over them.
  CHECK(Good(JobOf(path), {kGroups}).model().groups_size() == 2);
}

TEST_CASE("dimensions that no subnet can cut are refused together, each at its place",
          "[tensors]") {
  const std::string path = Write("cuts.safetensors", kTensors);
  const std::string job = absl::StrReplaceAll(JobOf(path), {{"train:", R"(  groups:
    one: [[fc.weight, 0], [fc.weigh, 0], [fc.bias, 1], [fc.weight, 1]]
    two: [[conv.weight, 2], [fc.weight, 0], [scale, 0]]
    three: [[conv.weight, 1], fc, [fc.bias], [conv.weight, first]]
    "four five": []
    six: []
train:)"}});
  const std::string errors = Errors(job, path);
  INFO(errors);
  // What cannot be read comes first; the rest is looked at when it can.
  for (const char* wanted :
       {"x.yaml:7:31: model.groups.three.1: got \"fc\", want [tensor, dimension]\n",
        "model.groups.three.2: got a list of 1, want [tensor, dimension]\n",
        "model.groups.three.3.dimension: got \"first\", want an integer",
        "model.groups: got the name \"four five\", want 1 to 256 letters",
        "model.groups.six: got a list of 0, want 1 to 65536 items\n"}) {
    INFO(wanted);
    CHECK(errors.find(wanted) != std::string::npos);
  }
  const std::string of_tensors = Errors(job, path,
                                        {"model.groups={one: [[fc.weight, 0], [fc.weigh, 0], "
                                         "[fc.bias, 1], [fc.weight, 1]], two: [[conv.weight, 2], "
                                         "[fc.weight, 0], [scale, 0]]}"});
  INFO(of_tensors);
  for (const char* wanted :
       {"model.groups.one.1: got [fc.weigh, 0], want a tensor of model.tensors",
        "model.groups.one.2: got [fc.bias, 1], want a dimension of the tensor, which is [3]",
        "model.groups.one.3: got [fc.weight, 1], of extent 4, want 3, the extent of [fc.weight, "
        "0], or "
        "a multiple of it: ",
        "model.groups.two.0: got [conv.weight, 2], want dimension 0 or 1 of [2, 3, 5, 5]: ",
        "model.groups.two.1: got [fc.weight, 0], want each dimension once; it is in group one",
        "model.groups.two.2: got [scale, 0], want a dimension of the tensor, which is []"}) {
    INFO(wanted);
    CHECK(of_tensors.find(wanted) != std::string::npos);
  }
}

TEST_CASE("a score may be any number, where an accuracy is a share", "[tensors]") {
  const std::string path = Write("target.safetensors", kTensors);
  CHECK(Good(JobOf(path), {"train.target_accuracy=20"}).train().target_accuracy() == 20);
}

TEST_CASE("a file that cannot be read is told with its key", "[tensors]") {
  const std::string none = PathOf("none.safetensors");
  CHECK(Errors(JobOf(none), none) ==
        "x.yaml:3:12: model.tensors: got \"F\", want a safetensors file that can be read; "
        "F: No such file or directory\n");
  // A server that fetches the file reads the job without it.
  const JobReading without = ReadJob({JobOf(none), "x.yaml", "/jobs", {}},
                                     {false, false, false, /*may_lack_tensors=*/true});
  CHECK(without.ok());
  CHECK(IsOfTensors(without.job.model()));
  CHECK(without.job.model().tensor_layout().tensors().empty());
  const std::string text = PathOf("text.safetensors");
  std::ofstream(text) << "this is no safetensors file";
  CHECK(Errors(JobOf(text), text)
            .find("x.yaml:3:12: model.tensors: got \"F\", want a safetensors "
                  "file of a model's tensors: ") == 0);
  // No text is no file, so that this is a job of layers.
  CHECK(Errors(JobOf("\"\""), none).find("model.layers: missing") != std::string::npos);
}

TEST_CASE("tensors that cannot be parameters are refused together, by name", "[tensors]") {
  const std::string path = Write("wrong.safetensors", {{"steps", {2}, "I64"},
                                                       {"empty", {0, 3}},
                                                       {"fine", {2}},
                                                       {std::string(1025, 'n'), {1}},
                                                       {"", {1}},
                                                       {"mask", {4}, "BOOL"}});
  const std::string errors = Errors(JobOf(path), path);
  INFO(errors);
  CHECK(errors.find("tensor \"steps\" is of I64, want F32, F16 or BF16; leave it out of the file "
                    "and keep it local to each worker") != std::string::npos);
  CHECK(errors.find("tensor \"empty\" is [0, 3], which has no entries") != std::string::npos);
  CHECK(errors.find("has a name of 1025 bytes, want at most 1024") != std::string::npos);
  CHECK(errors.find("a tensor has no name") != std::string::npos);
  CHECK(errors.find("tensor \"mask\" is of BOOL") != std::string::npos);
  CHECK(errors.find("fine") == std::string::npos);
  CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
  const std::string odd =
      Write("odd.safetensors", {{"a", {2}, "F32", std::numeric_limits<float>::quiet_NaN()}});
  CHECK(Errors(JobOf(odd), odd).find("tensor \"a\": value 0 is nan") != std::string::npos);
  const std::string nothing = Write("nothing.safetensors", {});
  CHECK(Errors(JobOf(nothing), nothing).find("has no tensors, want at least one") !=
        std::string::npos);
}

TEST_CASE("servers begin with the file's values, and notice that it was changed", "[tensors]") {
  const std::string path = Write("begin.safetensors", kTensors);
  const v1::Job job = Good(JobOf(path));
  const auto file = OpenInitialFile(job.model());
  REQUIRE(file.ok());
  CHECK((*file)->parameters() == 4);
  float row[4] = {};
  REQUIRE((*file)->FillRows(2, 1, 2, row).ok());
  CHECK(row[3] == 0.5f);
  REQUIRE((*file)->FillRows(3, 0, 1, row).ok());
  std::vector<Tensor> other = kTensors;
  other[0].value = 2;
  Write("begin.safetensors", other);
  CHECK(absl::IsFailedPrecondition(OpenInitialFile(job.model()).status()));
}

TEST_CASE("a job of 100,000 tensors is read, printed and digested in a moment",
          "[tensors][timed]") {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 100000; ++i) {
    tensors.push_back({absl::StrFormat("blocks.%d.attention.query.weight", i), {2, 2}});
  }
  const std::string path = Write("many.safetensors", tensors);
  const auto begin = std::chrono::steady_clock::now();
  const v1::Job job = Good(JobOf(path));
  CHECK(job.model().tensor_layout().tensors_size() == 100000);
  CHECK(JobDigest(job).size() == 64);
  CHECK(CanonicalJobText(job).size() < 10000);
  CHECK(PrintJob(job).size() < 10000);
  // Anything that grew with the square would take minutes.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

}  // namespace tessera

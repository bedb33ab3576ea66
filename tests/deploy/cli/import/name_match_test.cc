// Which tensor is which parameter.
#include "deploy/cli/import/name_match.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace tessera {
namespace {

ParameterSpec Matrix(const std::string& name, int64_t rows, int64_t columns) {
  ParameterSpec spec;
  spec.name = name;
  spec.rows = rows;
  spec.columns = columns;
  return spec;
}

ParameterSpec Vector(const std::string& name, int64_t rows) {
  ParameterSpec spec = Matrix(name, rows, 1);
  spec.is_vector = true;
  return spec;
}

TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape,
                  const std::string& dtype = "F32") {
  return {name, dtype, std::move(shape)};
}

// A linear layer, a batch norm and a linear layer.
std::vector<ParameterSpec> Parameters() {
  return {Matrix("layers.0.weight", 4, 3), Vector("layers.1.weight", 4), Vector("layers.1.bias", 4),
          Matrix("layers.3.weight", 2, 4), Vector("layers.3.bias", 2)};
}

// The model as a person would write it, in another order than the layers'.
std::vector<TensorSpec> OwnNames() {
  return {Tensor("bn.bias", {4}),          Tensor("bn.num_batches_tracked", {}, "I64"),
          Tensor("bn.running_mean", {4}),  Tensor("bn.running_var", {4}),
          Tensor("bn.weight", {4}, "F16"), Tensor("fc1.weight", {4, 3}),
          Tensor("fc2.bias", {2}),         Tensor("fc2.weight", {2, 4}, "BF16")};
}

const std::vector<Renaming> kMaps = {{"fc1", "layers.0"}, {"bn", "layers.1"}, {"fc2", "layers.3"}};

absl::StatusOr<NameMatch> Match(const std::vector<TensorSpec>& tensors,
                                const std::vector<Renaming>& renamings = {}) {
  return MatchNames(Parameters(), {"layers.1"}, tensors, renamings);
}

std::string ErrorOf(const std::vector<TensorSpec>& tensors,
                    const std::vector<Renaming>& renamings = {}) {
  const absl::StatusOr<NameMatch> match = Match(tensors, renamings);
  REQUIRE_FALSE(match.ok());
  CHECK(match.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(match.status().message());
}

std::vector<TensorSpec> WithPrefix(const std::string& prefix) {
  std::vector<TensorSpec> tensors;
  for (const char* const name : {"0.weight", "1.weight", "1.bias", "3.weight", "3.bias"}) {
    for (const ParameterSpec& spec : Parameters()) {
      if (spec.name != std::string("layers.") + name) continue;
      tensors.push_back(Tensor(prefix + name, spec.is_vector
                                                  ? std::vector<int64_t>{spec.rows}
                                                  : std::vector<int64_t>{spec.rows, spec.columns}));
    }
  }
  return tensors;
}

TEST_CASE("modules that are named as layers give the parameters, whatever their order",
          "[cli][import]") {
  const absl::StatusOr<NameMatch> match = Match(OwnNames(), kMaps);
  REQUIRE(match.ok());
  CHECK(match->tensors == std::vector<size_t>{5, 4, 0, 7, 6});
  CHECK(match->passed_over ==
        std::vector<std::string>{"bn.num_batches_tracked", "bn.running_mean", "bn.running_var"});
}

TEST_CASE("the names of the layers need no renaming, behind whatever one module has them all",
          "[cli][import]") {
  for (const char* const prefix : {"layers.", "", "net.", "module.net.layers."}) {
    CAPTURE(prefix);
    std::vector<TensorSpec> tensors = WithPrefix(prefix);
    tensors.push_back(Tensor(std::string(prefix) + "1.running_mean", {4}));
    const absl::StatusOr<NameMatch> match = Match(tensors);
    REQUIRE(match.ok());
    CHECK(match->tensors == std::vector<size_t>{0, 1, 2, 3, 4});
    CHECK(match->passed_over.size() == 1);
  }
}

TEST_CASE("two modules that each have all the layers are told apart by nobody", "[cli][import]") {
  std::vector<TensorSpec> tensors = WithPrefix("teacher.");
  for (const TensorSpec& tensor : WithPrefix("student.")) tensors.push_back(tensor);
  const std::string error = ErrorOf(tensors);
  CHECK(error.find("tensor \"layers.0.weight\" is missing, want [4, 3]") != std::string::npos);
  CHECK(error.find("of the shapes of \"layers.0\" are student.0, teacher.0; say which it is with "
                   "--map MODULE=layers.0") != std::string::npos);
}

TEST_CASE("all that do not fit are named at once, with the renamings that their shapes suggest",
          "[cli][import]") {
  std::vector<TensorSpec> tensors = OwnNames();
  tensors.push_back(Tensor("extra", {7, 7}));
  CHECK(ErrorOf(tensors) ==
        "tensor \"layers.0.weight\" is missing, want [4, 3]\n"
        "tensor \"layers.1.weight\" is missing, want [4]\n"
        "tensor \"layers.1.bias\" is missing, want [4]\n"
        "tensor \"layers.3.weight\" is missing, want [2, 4]\n"
        "tensor \"layers.3.bias\" is missing, want [2]\n"
        "tensor \"bn.bias\" [4] is no parameter of the job's layers\n"
        "tensor \"bn.num_batches_tracked\" [] is no parameter of the job's layers\n"
        "tensor \"bn.running_mean\" [4] is no parameter of the job's layers\n"
        "tensor \"bn.running_var\" [4] is no parameter of the job's layers\n"
        "tensor \"bn.weight\" [4] is no parameter of the job's layers\n"
        "tensor \"fc1.weight\" [4, 3] is no parameter of the job's layers\n"
        "tensor \"fc2.bias\" [2] is no parameter of the job's layers\n"
        "tensor \"fc2.weight\" [2, 4] is no parameter of the job's layers\n"
        "tensor \"extra\" [7, 7] is no parameter of the job's layers\n"
        "by the shapes alone it would be --map fc1=layers.0 --map bn=layers.1 --map fc2=layers.3");
}

TEST_CASE("wrong shapes, types, repeated and useless names are errors of their tensors",
          "[cli][import]") {
  std::vector<TensorSpec> tensors = OwnNames();
  tensors[5].shape = {3, 4};
  tensors[0].dtype = "F64";
  CHECK(ErrorOf(tensors, kMaps) ==
        "tensor \"bn.bias\" is of F64, want F32, F16 or BF16 as \"layers.1.bias\"\n"
        "tensor \"fc1.weight\" is [3, 4], want [4, 3] as \"layers.0.weight\"");

  tensors = OwnNames();
  tensors.push_back(Tensor("layers.3.bias", {2}));
  tensors.push_back(Tensor("fc1.running_mean", {4}));
  std::vector<Renaming> maps = kMaps;
  maps.push_back({"fc9", "layers.0"});
  CHECK(ErrorOf(tensors, maps) ==
        "tensors \"fc2.bias\" and \"layers.3.bias\" are both \"layers.3.bias\", want one\n"
        "tensor \"fc1.running_mean\" [4] is no parameter of the job's layers; leave it out of the "
        "file\n"
        "--map fc9=layers.0: no tensor is called so, or is in such a module");
}

TEST_CASE("the longest name that fits a tensor is the one that renames it", "[cli][import]") {
  const std::vector<TensorSpec> tensors = {
      Tensor("net.0.weight", {4, 3}), Tensor("net.1.weight", {4}), Tensor("net.1.bias", {4}),
      Tensor("net.head.weight", {2, 4}), Tensor("net.head.bias", {2})};
  const absl::StatusOr<NameMatch> match =
      Match(tensors, {{"net", "layers"}, {"net.head", "layers.3"}});
  REQUIRE(match.ok());
  CHECK(match->tensors == std::vector<size_t>{0, 1, 2, 3, 4});
  // A name that only begins with the same letters is another module.
  CHECK_FALSE(Match(tensors, {{"ne", "layers"}}).ok());
}

TEST_CASE("a renaming is two names", "[cli][import]") {
  const absl::StatusOr<Renaming> renaming = ParseRenaming("net.fc1=layers.0");
  REQUIRE(renaming.ok());
  CHECK(renaming->from == "net.fc1");
  CHECK(renaming->to == "layers.0");
  for (const char* const text : {"", "fc1", "fc1=", "=layers.0", "a=b=c"}) {
    CAPTURE(text);
    const absl::Status status = ParseRenaming(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find("want MODULE=LAYER") != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera

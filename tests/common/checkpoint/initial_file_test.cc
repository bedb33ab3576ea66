// The file that a job begins with.
#include "common/checkpoint/initial_file.h"

#include <catch2/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/safetensors_writer.h"

namespace tessera {
namespace {

std::string PathOf(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// Two parameters of a model: a convolution's weight, and a vector.
std::vector<ParameterSpec> Parameters() {
  ParameterSpec weight, bias;
  weight.name = "layers.0.weight";
  weight.rows = 2;
  weight.columns = 3;
  weight.columns_are = {3, 1, 1};
  bias.name = "layers.0.bias";
  bias.rows = 2;
  bias.is_vector = true;
  return {weight, bias};
}

struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T>
Tensor TensorOf(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  return {name, dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

std::string Write(const std::string& name, const std::vector<Tensor>& tensors) {
  const std::string path = PathOf(name);
  std::vector<TensorSpec> specs;
  for (const Tensor& each : tensors) specs.push_back({each.name, each.dtype, each.shape});
  auto writer = SafetensorsWriter::Create(path, specs, {});
  REQUIRE(writer.ok());
  for (const Tensor& each : tensors) {
    REQUIRE((*writer)->Append(each.bytes.data(), static_cast<int64_t>(each.bytes.size())).ok());
  }
  REQUIRE((*writer)->Finish().ok());
  return path;
}

const std::vector<float> kWeight = {1, -2, 0.5f, 4, 0, -0.25f};
const std::vector<float> kBias = {3, -1};

Tensor Weight() { return TensorOf("layers.0.weight", "F32", {2, 3, 1, 1}, kWeight); }
Tensor Bias() { return TensorOf("layers.0.bias", "F32", {2}, kBias); }

std::string ErrorOf(const std::string& path) {
  const auto opened = InitialFile::Open(path, Parameters());
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.status().code() == absl::StatusCode::kInvalidArgument);
  std::string message(opened.status().message());
  const size_t at = message.find(path);
  REQUIRE(at != std::string::npos);
  return message.replace(at, path.size(), "F");
}

}  // namespace

TEST_CASE("values are multiplied by their parameter's factor, which the sum tells", "[initial]") {
  const std::string path = Write("factors.safetensors", {Weight(), Bias()});
  const auto plain = InitialFile::Open(path, Parameters());
  const auto file = InitialFile::Open(path, Parameters(), {4, 1});
  REQUIRE(plain.ok());
  REQUIRE(file.ok());
  std::vector<float> weight(3), bias(2);
  REQUIRE((*file)->FillRows(0, 1, 2, weight.data()).ok());
  CHECK(weight == std::vector<float>{16, 0, -1});
  REQUIRE((*file)->FillRows(1, 0, 2, bias.data()).ok());
  CHECK(bias == kBias);
  CHECK((*file)->sum() != (*plain)->sum());
}

TEST_CASE("rows are those of the file, of any of three dtypes, and so is the sum", "[initial]") {
  // The values have few bits, so that each dtype has them.
  const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x3800, 0x4400, 0x0000, 0xb400};
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x3f00, 0x4080, 0x0000, 0xbe80};
  const std::vector<Tensor> weights = {Weight(),
                                       TensorOf("layers.0.weight", "F16", {2, 3, 1, 1}, f16),
                                       TensorOf("layers.0.weight", "BF16", {2, 3, 1, 1}, bf16)};
  uint64_t sum = 0;
  for (const Tensor& weight : weights) {
    CAPTURE(weight.dtype);
    // Their order in the file is another one than the model's.
    const auto opened =
        InitialFile::Open(Write("right.safetensors", {Bias(), weight}), Parameters());
    INFO(opened.status());
    REQUIRE(opened.ok());
    const InitialFile& file = **opened;
    CHECK(file.parameters() == 2);
    std::vector<float> all(6), row(3), bias(2);
    REQUIRE(file.FillRows(0, 0, 2, all.data()).ok());
    CHECK(all == kWeight);
    REQUIRE(file.FillRows(0, 1, 2, row.data()).ok());
    CHECK(row == std::vector<float>{4, 0, -0.25f});
    REQUIRE(file.FillRows(1, 0, 2, bias.data()).ok());
    CHECK(bias == kBias);
    CHECK(file.sum() != 0);
    if (sum == 0) sum = file.sum();
    CHECK(file.sum() == sum);
    CHECK(file.others().empty());
    CHECK(file.DescribeOthers().empty());
  }
  Tensor other = Bias();
  other.bytes[0] ^= 1;
  const auto differs =
      InitialFile::Open(Write("other.safetensors", {Weight(), other}), Parameters());
  REQUIRE(differs.ok());
  CHECK((*differs)->sum() != sum);
}

TEST_CASE("tensors that the model has not are named and change nothing", "[initial]") {
  const auto plain =
      InitialFile::Open(Write("plain.safetensors", {Weight(), Bias()}), Parameters());
  const auto more = InitialFile::Open(
      Write("more.safetensors", {TensorOf<float>("layers.1.running_mean", "F32", {2}, {1, 2}),
                                 Weight(), Bias(), TensorOf<int64_t>("steps", "I64", {1}, {7})}),
      Parameters());
  REQUIRE((plain.ok() && more.ok()));
  CHECK((*more)->sum() == (*plain)->sum());
  CHECK((*more)->others() == std::vector<std::string>{"layers.1.running_mean", "steps"});
  CHECK((*more)->DescribeOthers() == "layers.1.running_mean, steps");
}

TEST_CASE("what is no file of the model is refused by name", "[initial]") {
  CHECK(ErrorOf(Write("missing.safetensors",
                      {Weight(), TensorOf<float>("layers.0.biases", "F32", {2}, {1, 2})})) ==
        "\"F\": tensor \"layers.0.bias\" is missing, want [2]; tensors that the model has not: "
        "layers.0.biases");
  CHECK(ErrorOf(Write("shape.safetensors",
                      {TensorOf("layers.0.weight", "F32", {3, 2, 1, 1}, kWeight), Bias()})) ==
        "\"F\": tensor \"layers.0.weight\" is [3, 2, 1, 1], want [2, 3, 1, 1]");
  CHECK(ErrorOf(Write("dtype.safetensors",
                      {Weight(), TensorOf<double>("layers.0.bias", "F64", {2}, {1, 2})})) ==
        "\"F\": tensor \"layers.0.bias\" is of F64, want F32, F16 or BF16");
  CHECK(
      ErrorOf(Write("both.safetensors",
                    {TensorOf<int32_t>("layers.0.weight", "I32", {2, 3, 1, 1}, {1, 2, 3, 4, 5, 6}),
                     TensorOf<float>("layers.0.bias", "F32", {1, 2}, {1, 2})})) ==
      "\"F\": tensor \"layers.0.weight\" is of I32, want F32, F16 or BF16; tensor "
      "\"layers.0.bias\" is [1, 2], want [2]");
  CHECK(ErrorOf(Write("nan.safetensors",
                      {Weight(), TensorOf<float>("layers.0.bias", "F32", {2},
                                                 {1, std::numeric_limits<float>::infinity()})})) ==
        "\"F\": tensor \"layers.0.bias\": value 1 is inf, want numbers that are finite");
}

TEST_CASE("a file that was cut is refused, and one that is cut later is an error", "[initial]") {
  const std::string path = Write("cut.safetensors", {Weight(), Bias()});
  const auto bytes = std::filesystem::file_size(path);
  const auto opened = InitialFile::Open(path, Parameters());
  REQUIRE(opened.ok());
  std::filesystem::resize_file(path, bytes - 4);
  CHECK_FALSE(InitialFile::Open(path, Parameters()).ok());
  std::vector<float> bias(2);
  CHECK_FALSE((*opened)->FillRows(1, 0, 2, bias.data()).ok());
  CHECK(InitialFile::Open(PathOf("none.safetensors"), Parameters()).status().code() ==
        absl::StatusCode::kNotFound);
}

}  // namespace tessera

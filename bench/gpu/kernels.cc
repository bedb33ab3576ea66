#include "bench/gpu/kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/bf16.h"
#include "common/codec/coded_keys.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "kernels/devices.h"
#include "kernels/place_ranks.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

// How many arrays a kernel needs: some of a matrix's size, some of a row's, and labels for the rows.
constexpr int kMatrices = 5;
constexpr int kVectors = 6;

// The share of the copy's bytes per second that batch norm, losses, optimizers and gather are to reach, for arrays
// that no cache holds.
constexpr double kAim = 0.8;
// One of so many places is in the set of those that move.
constexpr uint64_t kPlacesPerEntry = 5;
// A threshold that one in a few hundred normal values reaches.
constexpr float kTau = 3.0f;
// Normal values that are drawn: a matrix is these again and again, and each begins elsewhere. A prime, so
// that rows differ.
constexpr size_t kDrawn = 1048573;
constexpr size_t kApart = 200003;

struct Arrays {
  MatrixShape shape;
  Buffer<float> matrix[kMatrices];
  Buffer<float> vector[kVectors];
  Buffer<Bf16> halves;
  Buffer<int32_t> labels;
  Buffer<LossSums> sums;
  Buffer<DropoutKey> key;
  Buffer<OptimizerNumbers> numbers;
  // What an exchange writes, and which entries move.
  Buffer<char> bytes;
  Buffer<uint64_t> words;
  Buffer<int64_t> ranks;
  Buffer<uint64_t> steps;
  PlaceSet places() const { return {words.data(), ranks.data(), steps.data()}; }
  Buffer<ThresholdTile> tiles;
  Buffer<uint32_t> bits;
};

struct Kernel {
  std::string name;
  // Bytes that must move for each entry of the matrix.
  double bytes_per_entry;
  std::function<void(Backend&, Arrays&)> run;
  double aim = 0;
};

v1::Optimizer OptimizerOf(const std::string& kind) {
  v1::Optimizer optimizer;
  if (kind == "adamw") {
    optimizer.mutable_adamw()->set_learning_rate(1e-3);
    optimizer.mutable_adamw()->set_beta1(0.9);
    optimizer.mutable_adamw()->set_beta2(0.999);
    optimizer.mutable_adamw()->set_epsilon(1e-3);
  } else {
    optimizer.mutable_sgd()->set_learning_rate(1e-3);
    if (kind == "momentum") optimizer.mutable_sgd()->set_momentum(0.9);
  }
  return optimizer;
}

// An optimizer's kernel, with the bytes that it must move for each entry.
Kernel Optimizer(const std::string& kind, double bytes, bool rounds = false) {
  return {rounds ? absl::StrCat(kind, ", rounds to bf16") : kind, bytes,
          [kind, rounds](Backend& backend, Arrays& a) {
            float* const states[] = {a.matrix[3].data(), a.matrix[4].data()};
            backend.vector()
                .MakeOptimizer(OptimizerOf(kind))
                ->Step(a.numbers.data(), a.shape.size(), a.matrix[1].data(), states,
                       a.matrix[2].data(), rounds ? a.halves.data() : nullptr);
          },
          kAim};
}

// All of the matrix as one parameter.
Segment SegmentOf(const Codec& codec, const MatrixShape& shape) {
  ModelShape model;
  ParameterSpec weight;
  weight.rows = shape.rows;
  weight.columns = shape.columns;
  model.parameters.push_back(weight);
  model.size = shape.size();
  return CodedKeys(codec, SlicesOf(model, ShardId(0), 1), model).segments().front();
}

Kernel Encoding(const std::string& name, const Codec& codec, bool holds_back, double bytes) {
  return {name, bytes, [codec, holds_back](Backend& b, Arrays& a) {
            b.exchange().Encode(SegmentOf(codec, a.shape), {7, 8}, a.matrix[0].data(),
                                holds_back ? a.matrix[2].data() : nullptr, a.bytes.data());
          }};
}

Kernel Decoding(const std::string& name, const Codec& codec, double bytes) {
  return {name, bytes, [codec](Backend& b, Arrays& a) {
            b.exchange().Decode(SegmentOf(codec, a.shape), a.bytes.data(), a.matrix[2].data());
          }};
}

std::vector<Kernel> ExchangeKernels() {
  std::vector<Kernel> kernels;
  kernels.push_back(Encoding("encode bf16", Bf16Codec(), false, 6));
  kernels.push_back(Decoding("decode bf16", Bf16Codec(), 6));
  // Rows fit a block's registers: read once.
  kernels.push_back(Encoding("encode int8", Int8Codec(), false, 5));
  kernels.push_back(Decoding("decode int8", Int8Codec(), 5));
  kernels.push_back(Encoding("encode qsgd, buckets of 512", QsgdCodec(), false, 5));
  kernels.push_back(Encoding("encode qsgd, held back", QsgdCodec(), true, 13));
  kernels.push_back({"threshold: marks, held back", 12, [](Backend& b, Arrays& a) {
                       b.exchange().FindMarks(a.shape.size(), kTau, a.matrix[0].data(),
                                              a.matrix[2].data(), a.tiles.data(), a.bits.data());
                     }});
  const double entry = 4.0 / kPlacesPerEntry;
  kernels.push_back({"gather one in 5", 4 + entry,
                     [](Backend& b, Arrays& a) {
                       b.exchange().Gather(a.places(), 0, a.shape.size(), a.matrix[0].data(),
                                           a.matrix[2].data());
                     },
                     kAim});
  // Few pieces of 32 bytes, the memory's, have no entry, and one that is written in part is read first.
  const double pieces = 1 - std::pow(1 - 1.0 / kPlacesPerEntry, 32 / sizeof(float));
  kernels.push_back({"scatter one in 5", 8 * pieces + entry, [](Backend& b, Arrays& a) {
                       b.exchange().Scatter(a.places(), 0, a.shape.size(), a.matrix[0].data(),
                                            a.matrix[2].data());
                     }});
  return kernels;
}

// The matrix as images; a small one as ones of odd extents.
ImagesShape ImagesOf(const MatrixShape& shape, const Window& window) {
  const Image large{64, 32, 32}, odd{5, 6, 4};
  const Image& image = shape.size() >= large.size() ? large : odd;
  return {shape.size() / image.size(), MapOf(image, window, image.channels)};
}

std::vector<Kernel> ImageKernels() {
  const Window quarter{2, 2, 2, 2, 0, 0};
  std::vector<Kernel> kernels;
  kernels.push_back({"max pooling, 2x2", 5, [quarter](Backend& b, Arrays& a) {
                       b.pooling().Max(ImagesOf(a.shape, quarter), a.matrix[0].data(),
                                       a.matrix[2].data());
                     }});
  kernels.push_back({"max pooling, 2x2, backward", 9, [quarter](Backend& b, Arrays& a) {
                       b.pooling().MaxBackward(ImagesOf(a.shape, quarter), a.matrix[0].data(),
                                               a.matrix[1].data(), a.matrix[2].data());
                     }});
  kernels.push_back({"transpose: channels last", 8, [](Backend& b, Arrays& a) {
                       const ImagesShape images = ImagesOf(a.shape, {});
                       const Image& image = images.map.from;
                       b.vector().Transpose(images.rows, {image.channels, image.positions()},
                                            a.matrix[0].data(), a.matrix[2].data());
                     }});
  return kernels;
}

std::vector<Kernel> Kernels() {
  std::vector<Kernel> kernels;
  kernels.push_back({"device copy", 8, [](Backend& b, Arrays& a) {
                       b.memory().Copy(a.matrix[0].data(), a.matrix[0].bytes(), a.matrix[2].data());
                     }});
  kernels.push_back({"batch norm: statistics", 4,
                     [](Backend& b, Arrays& a) {
                       b.batch_norm().Statistics(a.shape, 1e-5, a.matrix[0].data(),
                                                 a.vector[0].data(), a.vector[1].data());
                     },
                     kAim});
  kernels.push_back({"batch norm: normalize, relu", 8,
                     [](Backend& b, Arrays& a) {
                       b.batch_norm().Normalize(a.shape, a.matrix[0].data(), a.vector[2].data(),
                                                a.vector[3].data(), {}, true, a.matrix[2].data());
                     },
                     kAim});
  // Two readings of x, dy and y: the gradient wants sums over all rows first.
  kernels.push_back({"batch norm: backward, relu", 28,
                     [](Backend& b, Arrays& a) {
                       b.batch_norm().Backward(
                           a.shape,
                           {a.matrix[0].data(), a.vector[2].data(), a.vector[3].data(), nullptr,
                            a.matrix[3].data(), a.matrix[1].data()},
                           WriteMode::kOverwrite, a.vector[4].data(), a.vector[5].data(),
                           a.matrix[2].data());
                     },
                     kAim});
  kernels.push_back({"relu", 8, [](Backend& b, Arrays& a) {
                       b.activation().Relu(a.shape.size(), a.matrix[0].data(), a.matrix[2].data());
                     }});
  kernels.push_back({"dropout", 8, [](Backend& b, Arrays& a) {
                       b.activation().Dropout(a.shape, a.key.data(), 4, 0.3, a.matrix[0].data(),
                                              a.matrix[2].data());
                     }});
  kernels.push_back({"softmax, loss, gradient", 8,
                     [](Backend& b, Arrays& a) {
                       b.loss().SoftmaxCrossEntropy(a.shape, a.matrix[0].data(), {a.labels.data()},
                                                    {}, a.matrix[2].data(), a.sums.data());
                     },
                     kAim});
  kernels.push_back({"sigmoid, loss, gradient", 8,
                     [](Backend& b, Arrays& a) {
                       b.loss().SigmoidCrossEntropy(a.shape, a.matrix[0].data(),
                                                    {a.labels.data(), nullptr}, {},
                                                    a.matrix[2].data(), a.sums.data());
                     },
                     kAim});
  kernels.push_back(Optimizer("sgd", 12));
  kernels.push_back(Optimizer("sgd", 14, /*rounds=*/true));
  kernels.push_back(Optimizer("momentum", 20));
  kernels.push_back(Optimizer("adamw", 28));
  kernels.push_back({"subtract (delta)", 12, [](Backend& b, Arrays& a) {
                       b.vector().Subtract(a.shape.size(), a.matrix[0].data(), a.matrix[1].data(),
                                           a.matrix[2].data());
                     }});
  kernels.push_back({"column sums (bias)", 4, [](Backend& b, Arrays& a) {
                       b.vector().ColumnSums(a.shape, a.matrix[0].data(), WriteMode::kOverwrite,
                                             a.vector[0].data());
                     }});
  kernels.push_back({"round to bf16", 6, [](Backend& b, Arrays& a) {
                       b.vector().Round(a.shape.size(), a.matrix[0].data(), a.halves.data());
                     }});
  for (Kernel& kernel : ImageKernels()) kernels.push_back(std::move(kernel));
  for (Kernel& kernel : ExchangeKernels()) kernels.push_back(std::move(kernel));
  return kernels;
}

// Values that kernels are fed. They are drawn once, as drawing takes longer than any kernel.
std::vector<float> Drawn() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> drawn(kDrawn);
  for (float& value : drawn) value = normal(random);
  return drawn;
}

// Fills `values` with the drawn ones, from place `begin` on and again and again.
void Repeat(const std::vector<float>& drawn, size_t begin, std::vector<float>* values) {
  begin %= drawn.size();
  for (size_t i = 0; i < values->size();) {
    const size_t count = std::min(drawn.size() - begin, values->size() - i);
    std::copy_n(drawn.data() + begin, count, values->data() + i);
    i += count;
    begin = 0;
  }
}

// Makes the arrays on the device. Every kernel finds the same values there, whatever ran before it.
absl::StatusOr<std::unique_ptr<Arrays>> Fill(Backend& backend, const MatrixShape& shape,
                                             const std::vector<float>& drawn) {
  auto arrays = std::make_unique<Arrays>();
  arrays->shape = shape;
  Memory& memory = backend.memory();
  std::mt19937 random(7);
  std::vector<float> values(shape.size());
  for (int m = 0; m < kMatrices; ++m) {
    Repeat(drawn, m * kApart, &values);
    if (m >= 3) {  // State arrays hold squares.
      for (float& value : values) value = std::fabs(value);
    }
    TESSERA_ASSIGN_OR_RETURN(arrays->matrix[m], Buffer<float>::Create(memory, shape.size()));
    memory.CopyIn(values.data(), arrays->matrix[m].bytes(), arrays->matrix[m].data());
  }
  for (int v = 0; v < kVectors; ++v) {
    TESSERA_ASSIGN_OR_RETURN(arrays->vector[v], Buffer<float>::Create(memory, shape.columns));
    memory.CopyIn(values.data(), arrays->vector[v].bytes(), arrays->vector[v].data());
  }
  std::vector<int32_t> labels(shape.rows);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % shape.columns);
  TESSERA_ASSIGN_OR_RETURN(arrays->labels, Buffer<int32_t>::Create(memory, shape.rows));
  memory.CopyIn(labels.data(), arrays->labels.bytes(), arrays->labels.data());
  const DropoutKey key{1, 2, 3};
  TESSERA_ASSIGN_OR_RETURN(arrays->key, Buffer<DropoutKey>::Create(memory, 1));
  memory.CopyIn(&key, sizeof(key), arrays->key.data());
  // Sgd reads those that all have in common.
  const OptimizerNumbers numbers = NumbersOf(OptimizerOf("adamw"), {});
  TESSERA_ASSIGN_OR_RETURN(arrays->numbers, Buffer<OptimizerNumbers>::Create(memory, 1));
  memory.CopyIn(&numbers, sizeof(numbers), arrays->numbers.data());
  TESSERA_ASSIGN_OR_RETURN(arrays->halves, Buffer<Bf16>::Create(memory, shape.size()));
  TESSERA_ASSIGN_OR_RETURN(arrays->sums, Buffer<LossSums>::Create(memory, 1));
  const int64_t n = shape.size(), tiles = ThresholdTiles(n);
  std::vector<uint64_t> words((n + 63) / 64);
  for (int64_t i = 0; i < n; ++i) {
    if (random() % kPlacesPerEntry == 0) words[i / 64] |= uint64_t{1} << i % 64;
  }
  const PlaceRanks of(words);
  // Codecs leave small arrays as they are.
  TESSERA_ASSIGN_OR_RETURN(arrays->bytes, Buffer<char>::Create(memory, 4 * n));
  TESSERA_ASSIGN_OR_RETURN(arrays->words, Buffer<uint64_t>::Create(memory, words.size()));
  TESSERA_ASSIGN_OR_RETURN(arrays->ranks, Buffer<int64_t>::Create(memory, of.ranks.size()));
  TESSERA_ASSIGN_OR_RETURN(arrays->steps, Buffer<uint64_t>::Create(memory, of.steps.size()));
  TESSERA_ASSIGN_OR_RETURN(arrays->tiles, Buffer<ThresholdTile>::Create(memory, tiles));
  TESSERA_ASSIGN_OR_RETURN(arrays->bits, Buffer<uint32_t>::Create(memory, tiles * kTileWords));
  memory.CopyIn(words.data(), arrays->words.bytes(), arrays->words.data());
  memory.CopyIn(of.ranks.data(), arrays->ranks.bytes(), arrays->ranks.data());
  memory.CopyIn(of.steps.data(), arrays->steps.bytes(), arrays->steps.data());
  return arrays;
}

// All that a kernel may have written, for the comparison with the CPU's.
std::vector<float> Read(Backend& backend, const Arrays& arrays) {
  std::vector<float> all;
  const auto read = [&](const Buffer<float>& buffer) {
    const size_t begin = all.size();
    all.resize(begin + buffer.size());
    backend.memory().CopyOut(buffer.data(), buffer.bytes(), all.data() + begin);
  };
  for (const Buffer<float>& matrix : arrays.matrix) read(matrix);
  for (const Buffer<float>& vector : arrays.vector) read(vector);
  return all;
}

// What an exchange wrote; nothing but these may be compared bit for bit.
std::vector<char> ReadBytes(Backend& backend, const Arrays& arrays) {
  const int64_t bits = arrays.bits.bytes();
  std::vector<char> all(arrays.bytes.size() + bits);
  backend.memory().CopyOut(arrays.bytes.data(), arrays.bytes.bytes(), all.data());
  backend.memory().CopyOut(arrays.bits.data(), bits, all.data() + arrays.bytes.size());
  return all;
}

// In what the results are not the CPU's; empty: in nothing. The battery holds kernels to finer bounds.
absl::StatusOr<std::string> WrongIn(const Kernel& kernel, const MatrixShape& shape,
                                    const std::vector<float>& drawn, Backend& device,
                                    Backend& cpu) {
  TESSERA_ASSIGN_OR_RETURN(const auto want, Fill(cpu, shape, drawn));
  TESSERA_ASSIGN_OR_RETURN(const auto got, Fill(device, shape, drawn));
  kernel.run(cpu, *want);
  kernel.run(device, *got);
  TESSERA_RETURN_IF_ERROR(device.Finish());
  const std::vector<float> a = Read(cpu, *want), b = Read(device, *got);
  const std::string where = absl::StrCat(kernel.name, ", ", shape.rows, " x ", shape.columns, ": ");
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::fabs(a[i] - b[i]) <= 1e-5f * (1 + std::fabs(a[i]))) continue;
    return absl::StrCat(where, "value ", i, " is ", b[i], ", want ", a[i], " as on the CPU");
  }
  const bool same = ReadBytes(cpu, *want) == ReadBytes(device, *got);
  return same ? std::string() : where + "bytes are not the CPU's";
}

}  // namespace

absl::StatusOr<double> SecondsPerCall(Backend& backend, double seconds,
                                      const std::function<void()>& call) {
  const auto time = [&](int calls) -> absl::StatusOr<double> {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    TESSERA_RETURN_IF_ERROR(backend.Finish());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
  };
  TESSERA_ASSIGN_OR_RETURN(double once, time(3));
  TESSERA_ASSIGN_OR_RETURN(once, time(3));
  constexpr int kRounds = 5;
  const int calls = std::max(1, static_cast<int>(seconds / kRounds / std::max(once, 1e-7)));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    TESSERA_ASSIGN_OR_RETURN(const double each, time(calls));
    rounds.push_back(each);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

absl::Status KernelRates(Backend& device, const MatrixShape& shape, double seconds,
                         const std::function<void(const KernelRate&)>& tell) {
  std::unique_ptr<Backend> cpu;
  TESSERA_ASSIGN_OR_RETURN(cpu, CreateBackend("cpu", 1));
  const std::vector<float> drawn = Drawn();
  TESSERA_ASSIGN_OR_RETURN(const auto arrays, Fill(device, shape, drawn));
  std::vector<Kernel> kernels = Kernels();
  const Kernel copy = kernels.front();
  kernels.push_back(copy);
  const auto run = [&](const Kernel& kernel) { return [&] { kernel.run(device, *arrays); }; };
  // Clocks of a device that had nothing to do take a while to rise.
  TESSERA_RETURN_IF_ERROR(SecondsPerCall(device, 2 * seconds, run(copy)).status());
  for (const Kernel& kernel : kernels) {
    KernelRate rate{kernel.name, 0, kernel.aim, {}};
    // An odd size, and a few rows of the width that is timed, which other code may do.
    for (const MatrixShape& few : {MatrixShape{77, 130}, MatrixShape{9, shape.columns}}) {
      TESSERA_ASSIGN_OR_RETURN(const std::string wrong, WrongIn(kernel, few, drawn, device, *cpu));
      if (!wrong.empty()) rate.wrong.push_back(wrong);
    }
    TESSERA_ASSIGN_OR_RETURN(const double each, SecondsPerCall(device, seconds, run(kernel)));
    rate.bytes_per_second = kernel.bytes_per_entry * static_cast<double>(shape.size()) / each;
    tell(rate);
  }
  return absl::OkStatus();
}

absl::StatusOr<LinkRates> MeasureLink(Backend& device, int64_t bytes, double seconds) {
  Memory& memory = device.memory();
  TESSERA_ASSIGN_OR_RETURN(const Buffer<char> there, Buffer<char>::Create(memory, bytes));
  TESSERA_ASSIGN_OR_RETURN(const Buffer<char> here, Buffer<char>::CreateHost(memory, bytes));
  TESSERA_ASSIGN_OR_RETURN(const double to_device, SecondsPerCall(device, seconds, [&] {
                             memory.Send(here.data(), bytes, there.data());
                           }));
  TESSERA_ASSIGN_OR_RETURN(const double to_host, SecondsPerCall(device, seconds, [&] {
                             memory.Fetch(there.data(), bytes, here.data());
                           }));
  return LinkRates{static_cast<double>(bytes) / to_device, static_cast<double>(bytes) / to_host};
}

absl::StatusOr<double> CopyRate(Backend& device, int64_t bytes, double seconds) {
  Memory& memory = device.memory();
  TESSERA_ASSIGN_OR_RETURN(const Buffer<char> from, Buffer<char>::Create(memory, bytes));
  TESSERA_ASSIGN_OR_RETURN(const Buffer<char> to, Buffer<char>::Create(memory, bytes));
  double rate = 0;
  // Clocks of a device that had nothing to do take a while to rise.
  for (const double length : {2 * seconds, seconds}) {
    TESSERA_ASSIGN_OR_RETURN(const double each, SecondsPerCall(device, length, [&] {
                               memory.Copy(from.data(), bytes, to.data());
                             }));
    rate = 2.0 * static_cast<double>(bytes) / each;
  }
  return rate;
}

}  // namespace tessera

// Each codec over parameters that no cache holds, one thread, next to a plain loop that reads and
// writes as many bytes.
//
//   bazel-bin/bench/codecs/codecs [--mib 64] [--seconds 1.5] [--tiny]
//
// First checks that a payload reads as its encoder said, then times. Codec and plain loop take
// turns, so that a slow moment of the machine hits both; printed are medians of GB/s, counting the
// bytes of every array that is read or written once each, and the median of the ratios. Payloads
// are written and read in chunks of 1 MiB, as on their way; packed entries count as bytes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/codecs/plain_copies.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/codec/arrival_check.h"
#include "common/codec/bf16.h"
#include "common/codec/coded_keys.h"
#include "common/codec/decoder.h"
#include "common/codec/encoder.h"
#include "common/codec/error_feedback.h"
#include "common/codec/f16.h"
#include "common/codec/f32.h"
#include "common/codec/int8.h"
#include "common/codec/payload.h"
#include "common/codec/qsgd.h"
#include "common/codec/residual.h"
#include "common/codec/tau.h"
#include "common/codec/threshold.h"
#include "common/codec/threshold_payload.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {
namespace {

constexpr int64_t kColumns = 4096;
constexpr int64_t kChunkBytes = int64_t{1} << 20;

struct Flags {
  int64_t mebibytes = 64;
  double seconds = 1.5;
  bool tiny = false;
};

ModelShape OneMatrix(int64_t rows) {
  ModelShape shape;
  ParameterSpec spec;
  spec.rows = rows;
  spec.columns = kColumns;
  shape.parameters.push_back(spec);
  shape.size = spec.size();
  return shape;
}

// Times a codec and a plain loop by turns, so that a slow moment of the machine hits both, and prints the median
// of their ratios.
void Compare(const std::string& codec, const char* what, double bytes, double seconds_min,
             const std::function<void()>& coded, const std::function<void()>& plain) {
  std::vector<double> coded_seconds;
  std::vector<double> plain_seconds;
  std::vector<double> ratios;
  double elapsed = 0;
  for (int round = 0; round < 5 || elapsed < seconds_min; ++round) {
    double a = 0;
    double b = 0;
    if (round % 2 == 0) {
      a = Seconds(coded);
      b = Seconds(plain);
    } else {
      b = Seconds(plain);
      a = Seconds(coded);
    }
    elapsed += a + b;
    if (round == 0) continue;
    coded_seconds.push_back(a);
    plain_seconds.push_back(b);
    ratios.push_back(b / a);
  }
  std::printf("%-42s %-8s %7.2f GB/s %7.2f plain %6.2f\n", codec.c_str(), what,
              bytes / Median(coded_seconds) * 1e-9, bytes / Median(plain_seconds) * 1e-9,
              Median(ratios));
  std::fflush(stdout);
}

// Arrays of one measurement.
struct Arrays {
  explicit Arrays(int64_t count) : values(count), sum(count), coded(4 * count) {
    for (int64_t i = 0; i < count; ++i) {
      // The sum of four uniform numbers: nearly normal.
      const PhiloxBlock block = Philox(1, Stream::kInitialValues, 0, i);
      for (const uint32_t word : block) values[i] += UnitFloat(word) - 0.5f;
    }
  }
  std::vector<float> values;
  std::vector<float> sum;
  std::vector<char> coded;
};

// Encodes all values in chunks, as a push does.
void EncodeAll(const CodedKeys& keys, Arrays* a, float* decoded = nullptr) {
  Encoder encoder(keys, {7, 1});
  int64_t at = 0;
  char* out = a->coded.data();
  while (encoder.left() > 0) {
    const Encoder::Step step =
        encoder.Encode(a->values.data() + at, static_cast<int64_t>(a->values.size()) - at, out,
                       kChunkBytes, decoded == nullptr ? nullptr : decoded + at);
    at += step.entries;
    out += step.bytes;
  }
}

// Decodes all chunks, setting the sum or adding to it, as a fold does.
void DecodeAll(const CodedKeys& keys, bool adds, Arrays* a) {
  Decoder decoder(keys);
  float* out = a->sum.data();
  for (int64_t begin = 0; begin < keys.bytes(); begin += kChunkBytes) {
    const int64_t size = std::min(kChunkBytes, keys.bytes() - begin);
    const char* const data = a->coded.data() + begin;
    out += (adds ? decoder.Accumulate(data, size, 0.5f, out, decoder.left())
                 : decoder.Assign(data, size, 0.5f, out, decoder.left()))
               .entries;
  }
}

// What a worker keeps of an encoder with feedback.
struct Feedback {
  explicit Feedback(const ModelShape& shape)
      : residual(shape), slices(SlicesOf(shape, ShardId(0), 1)) {}
  void EncodeAll(const CodedKeys& keys, Arrays* a) {
    Encoder plain(keys, {7, 1});
    ResidualCursor cursor(&residual, slices, nullptr);
    FeedbackEncoder encoder(&plain, &cursor);
    int64_t at = 0;
    char* out = a->coded.data();
    while (encoder.left() > 0) {
      const Encoder::Step step = encoder.Encode(
          a->values.data() + at, static_cast<int64_t>(a->values.size()) - at, out, kChunkBytes);
      at += step.entries;
      out += step.bytes;
    }
  }
  Residual residual;
  ShardSlices slices;
};

// What is held back of a first update is what the reader does not see of it.
bool HoldsBack(const Codec& codec) {
  const ModelShape shape = OneMatrix(9);
  const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
  Arrays a(shape.size);
  Feedback feedback(shape);
  feedback.EncodeAll(keys, &a);
  DecodeAll(keys, false, &a);
  for (int64_t i = 0; i < shape.size; ++i) {
    if (feedback.residual.of(0)[i] != a.values[i] - 2 * a.sum[i]) return false;
  }
  return true;
}

// Whether readers see what the encoder said that they would; nothing is timed before that.
bool Agrees(const Codec& codec) {
  const ModelShape shape = OneMatrix(9);
  const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
  Arrays a(shape.size);
  std::vector<float> seen(shape.size);
  EncodeAll(keys, &a, seen.data());
  ArrivalCheck check(keys);
  if (!check.Feed(a.coded.data(), keys.bytes())) return false;
  DecodeAll(keys, false, &a);
  double error = 0;
  double size = 0;
  for (int64_t i = 0; i < shape.size; ++i) {
    if (a.sum[i] != 0.5f * seen[i]) return false;
    error += (seen[i] - a.values[i]) * (seen[i] - a.values[i]);
    size += a.values[i] * a.values[i];
  }
  return codec == Codec() ? error == 0 : error < 2 * size && error > 0;
}

// Times encoding, decoding and adding, and where the codec has it error feedback.
void Measure(const Codec& codec, const Flags& flags, Arrays* a) {
  const int64_t count = static_cast<int64_t>(a->values.size());
  const ModelShape shape = OneMatrix(count / kColumns);
  const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
  const std::string name = codec->name();
  // Codes are about a byte an entry.
  const int narrow = std::max(1, codec->traits().entry_bytes);
  const double n = static_cast<double>(count);
  Compare(
      name, "encode", n * (4 + narrow), flags.seconds, [&] { EncodeAll(keys, a); },
      [&] { Narrow(a->values.data(), count, narrow, a->coded.data()); });
  if (codec->traits().loss == CodecLoss::kBiased) {
    Feedback feedback(shape);
    std::vector<float> held(count);
    Compare(
        name, "feedback", n * (12 + narrow), flags.seconds, [&] { feedback.EncodeAll(keys, a); },
        [&] { NarrowSum(a->values.data(), count, narrow, held.data(), a->coded.data()); });
  }
  EncodeAll(keys, a);
  std::vector<char> other(narrow * count, 1);
  Compare(
      name, "decode", n * (4 + narrow), flags.seconds, [&] { DecodeAll(keys, false, a); },
      [&] { Widen(other.data(), count, narrow, a->sum.data()); });
  Compare(
      name, "add", n * (8 + narrow), flags.seconds, [&] { DecodeAll(keys, true, a); },
      [&] { WidenOnto(other.data(), count, narrow, a->sum.data()); });
  std::fill(a->sum.begin(), a->sum.end(), 1.0f);
}

// Times the threshold's encoder, whose work depends on how many entries have grown to it.
bool MeasureThreshold(double density, const Flags& flags, Arrays* a) {
  const int64_t count = static_cast<int64_t>(a->values.size());
  const auto encode = [&](bool packs) {
    std::vector<float> magnitudes;
    Tau tau(0, density);
    SampleMagnitudes(a->values.data(), a->sum.data(), count, tau.sample_size(), &magnitudes);
    tau.Lead(std::move(magnitudes));
    ThresholdEncoder encoder(tau.value(), packs);
    encoder.Encode(a->values.data(), a->sum.data(), count);
    return encoder.Finish();
  };
  const Codec codec = ThresholdCodec({0, density, false});
  const double n = static_cast<double>(count);
  std::vector<float> other(count);
  for (const bool packs : {false, true}) {
    std::fill(a->sum.begin(), a->sum.end(), 0.0f);
    size_t bytes = 0;
    Compare(
        codec->name() + (packs ? ", packed" : ""), "encode", 12 * n, flags.seconds,
        [&] { bytes = encode(packs).size(); },
        [&] { AddOnto(a->values.data(), count, other.data()); });
    const std::vector<char> payload = encode(packs);
    Payload received;
    received.Append({payload.data(), static_cast<int64_t>(payload.size())}, nullptr);
    if (!CheckThresholdPayload(received, count).ok()) return false;
    std::printf("%-42s          1/%.0f of f32\n", "", 4 * n / static_cast<double>(bytes));
  }
  return true;
}

int Run(const Flags& flags) {
  const std::vector<Codec> codecs = {F32Codec(),   Bf16Codec(), F16Codec(),
                                     Int8Codec(),  QsgdCodec(), QsgdCodec(8, 512, true),
                                     QsgdCodec(4), QsgdCodec(2)};
  for (const Codec& codec : codecs) {
    if (Agrees(codec) && HoldsBack(codec)) continue;
    std::fprintf(stderr, "codecs: %s: the reader does not see what the encoder said\n",
                 codec->name().c_str());
    return 1;
  }
  std::printf("%zu codecs checked: readers see what encoders say\n", codecs.size());
  std::printf("%ld MiB of parameters; bytes read + written; share of the plain loop's rate\n",
              static_cast<long>(flags.mebibytes));
  Arrays arrays((flags.mebibytes << 20) / 4);
  for (const Codec& codec : codecs) Measure(codec, flags, &arrays);
  for (const double density : {0.002, 0.05}) {
    if (MeasureThreshold(density, flags, &arrays)) continue;
    std::fprintf(stderr, "codecs: threshold: a payload does not pass the check\n");
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times each codec against a plain loop over as many bytes.", "codecs");
  app.add_option("--mib", flags.mebibytes, "size of the parameters");
  app.add_option("--seconds", flags.seconds, "time to measure each codec and direction for");
  app.add_flag("--tiny", flags.tiny, "small arrays for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.mebibytes = 1;
    flags.seconds = 0.01;
  }
  return tessera::Run(flags);
}

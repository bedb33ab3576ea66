#include "common/codec/error_feedback.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "common/codec/decoder.h"
#include "common/codec/residual.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

// What a reader sees of `update`, sent in chunks.
std::vector<float> Send(const CodedKeys& keys, const ShardSlices& slices, const Subnet* subnet,
                        Residual* residual, const std::vector<float>& update) {
  ResidualCursor cursor(residual, slices, subnet);
  Encoder plain(keys, {7, 1});
  FeedbackEncoder encoder(&plain, &cursor);
  std::vector<char> bytes;
  int64_t at = 0;
  while (encoder.left() > 0) {
    std::vector<char> chunk(1000);
    const Encoder::Step step =
        encoder.Encode(update.data() + at, update.size() - at, chunk.data(), chunk.size());
    REQUIRE(step.bytes > 0);
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + step.bytes);
    at += step.entries;
  }
  const Payload payload = Cut(bytes, {});
  std::vector<float> read(update.size());
  PayloadReader(keys, payload).Assign(keys.entries(), 1, read.data());
  return read;
}

// Those that want error feedback, and one that does not and may have it.
std::vector<Codec> BiasedCodecs() {
  std::vector<Codec> codecs = {QsgdCodec(3)};
  for (const Codec& codec : AllCodecs()) {
    if (codec->traits().loss == CodecLoss::kBiased) codecs.push_back(codec);
  }
  return codecs;
}

TEST_CASE("what was sent and what is held back add up to all updates", "[codec][feedback]") {
  const ModelShape shape = ShapeWith({{20, 700}, {30, 1}});
  const ShardSlices slices = SlicesOf(shape, ShardId(0), 1);
  for (const Codec& codec : BiasedCodecs()) {
    const CodedKeys keys(codec, slices, shape);
    Residual residual(shape);
    std::vector<double> wanted(shape.size);
    std::vector<double> sent(shape.size);
    for (int step = 0; step < 100; ++step) {
      const std::vector<float> update = Normal(shape.size, step, 1e-3f);
      const std::vector<float> read = Send(keys, slices, nullptr, &residual, update);
      for (int64_t i = 0; i < shape.size; ++i) {
        wanted[i] += update[i];
        sent[i] += read[i];
      }
    }
    std::vector<float> held = residual.of(0);
    held.insert(held.end(), residual.of(1).begin(), residual.of(1).end());
    for (int64_t i = 0; i < shape.size; ++i) {
      REQUIRE(std::fabs(sent[i] + held[i] - wanted[i]) < 1e-6);
      // Nothing piles up: what is held back is one rounding.
      REQUIRE(std::fabs(held[i]) < 0.01);
    }
  }
}

TEST_CASE("a small steady update comes through int8 only with feedback", "[codec][feedback]") {
  const ModelShape shape = ShapeWith({{1, 100}});
  const ShardSlices slices = SlicesOf(shape, ShardId(0), 1);
  const CodedKeys keys(Int8Codec(), slices, shape);
  std::vector<float> update(100, 0.001f);
  update[0] = 1;
  Residual residual(shape);
  double sum = 0;
  double sum_without = 0;
  for (int step = 0; step < 1000; ++step) {
    sum += Send(keys, slices, nullptr, &residual, update)[50];
    Residual none(shape);
    sum_without += Send(keys, slices, nullptr, &none, update)[50];
  }
  CHECK(sum == Approx(1).margin(0.01));
  CHECK(sum_without == 0);
}

TEST_CASE("the residual stays with its entries when key set and servers change",
          "[codec][feedback][residual]") {
  const ModelShape shape = ShapeWith({{6, 5}, {6, 1}});
  NeuronGroups groups;
  groups.widths = {5, 6, 4};
  groups.outputs = 2;
  groups.uses = {{1, 0}, {1, -1}};
  Residual residual(shape);
  for (int p = 0; p < 2; ++p) {
    for (size_t i = 0; i < residual.of(p).size(); ++i) {
      residual.of(p)[i] = static_cast<float>(100 * p + static_cast<int>(i));
    }
  }
  SubnetPlace place;
  place.seed = 3;
  place.round = 2;
  place.site = 1;
  place.shares = {1, 1};
  const Subnet subnet = SubnetOf(shape, groups, place);
  for (int shard = 0; shard < 2; ++shard) {
    const ShardSlices slices = SubnetSlices(subnet, SlicesOf(shape, ShardId(shard), 2));
    ResidualCursor cursor(&residual, slices, &subnet);
    std::vector<float> read(slices.size);
    cursor.Read(slices.size, read.data());
    int64_t at = 0;
    for (const Slice& slice : slices.slices) {
      for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
        const int full_row = subnet.rows(slice.parameter)[row];
        for (int64_t column = 0; column < slice.columns; ++column) {
          const int wanted =
              slice.parameter == 0 ? full_row * 5 + static_cast<int>(column) : 100 + full_row;
          CHECK(read[at++] == static_cast<float>(wanted));
        }
      }
    }
    // Written in two parts, as a row that is cut by a chunk is.
    for (float& value : read) value = -value;
    const int64_t half = slices.size / 2;
    cursor.Write(half, read.data());
    cursor.Write(slices.size - half, read.data() + half);
  }
  int negated = 0;
  for (int p = 0; p < 2; ++p) {
    for (size_t i = 0; i < residual.of(p).size(); ++i) {
      const float wanted = static_cast<float>(100 * p + static_cast<int>(i));
      CHECK(std::fabs(residual.of(p)[i]) == wanted);
      negated += residual.of(p)[i] < 0 ? 1 : 0;
    }
  }
  // The site has 3 of 6 rows; entry 0 has no sign to see.
  const int rows_with_zero = subnet.rows(0)[0] == 0 ? 1 : 0;
  CHECK(negated == 3 * 5 + 3 - rows_with_zero);
}

TEST_CASE("a flush adds what is held back once", "[codec][residual]") {
  Residual residual(ShapeWith({{2, 2}, {3, 1}}));
  residual.of(0) = {1, 2, 3, 4};
  std::vector<float> update = {10, 10, 10, 10};
  residual.Flush(0, update.data());
  CHECK(update == std::vector<float>{11, 12, 13, 14});
  residual.Flush(0, update.data());
  CHECK(update == std::vector<float>{11, 12, 13, 14});
}

}  // namespace
}  // namespace tessera

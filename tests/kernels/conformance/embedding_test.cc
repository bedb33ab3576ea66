// Embeddings of tokens against plain loops.
#include <cmath>

#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

// Rows, places, vocabulary, units: one of each, tokens that come often and not at all, and some worth several threads.
const std::vector<EmbeddingShape>& Shapes() {
  static const std::vector<EmbeddingShape> shapes = {
      {0, 3, 5, 4},   {1, 1, 1, 1},    {1, 1, 7, 5},      {3, 2, 2, 1},      {2, 7, 65, 33},
      {5, 64, 3, 16}, {1, 257, 11, 1}, {12, 64, 65, 128}, {2, 33, 5000, 40}, {300, 1, 9, 17}};
  return shapes;
}

std::vector<float> Tokens(const EmbeddingShape& s, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> tokens(s.tokens());
  // Low ones are more frequent.
  for (float& token : tokens) {
    token = static_cast<float>(std::min(random() % s.vocabulary, random() % s.vocabulary));
  }
  // The last one is among them.
  if (!tokens.empty()) tokens[tokens.size() / 2] = static_cast<float>(s.vocabulary - 1);
  return tokens;
}

// A sum of f32 values in any precision from f32 on: within a rounding for each.
struct Sums {
  explicit Sums(int64_t n) : value(n), size(n), count(n) {}
  std::vector<double> value, size, count;
  void Add(int64_t i, float term) {
    value[i] += term;
    size[i] += std::fabs(term);
    count[i] += 1;
  }
  void Check(const std::vector<float>& got, const std::vector<float>& before) const {
    for (size_t i = 0; i < got.size(); ++i) {
      const double start = before.empty() ? 0.0 : before[i];
      CAPTURE(i);
      REQUIRE(std::fabs(got[i] - (start + value[i])) <=
              kRoundoff * count[i] * (std::fabs(start) + size[i]));
    }
  }
};

}  // namespace

TEST_CASE("a token becomes its vector, with that of its place added", "[embedding]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool has_positions = GENERATE(false, true);
  const int64_t misaligned = GENERATE(0, 1);
  for (const EmbeddingShape& s : Shapes()) {
    CAPTURE(s.rows, s.places, s.vocabulary, s.units, has_positions, misaligned);
    const std::vector<float> tokens = Tokens(s, 4),
                             weight = RandomValues(s.vocabulary * s.units, 5),
                             positions = RandomValues(s.places * s.units, 6);
    const DeviceArray<float> dev_tokens(*backend, tokens, misaligned),
        dev_weight(*backend, weight, misaligned), dev_positions(*backend, positions, misaligned),
        y(*backend, std::vector<float>(s.tokens() * s.units, NAN), misaligned);
    backend->embedding().Forward(s, dev_tokens.data(), dev_weight.data(),
                                 has_positions ? dev_positions.data() : nullptr, y.data());
    const std::vector<float> got = y.Read();
    for (int64_t i = 0; i < s.tokens() * s.units; ++i) {
      const int64_t at = i / s.units, u = i % s.units;
      const float of_token = weight[static_cast<int64_t>(tokens[at]) * s.units + u];
      const float of_place = positions[at % s.places * s.units + u];
      REQUIRE(got[i] == (has_positions ? of_token + of_place : of_token));
    }
  }
}

TEST_CASE("a token's gradient is the sum over where it occurs, a place's over all rows",
          "[embedding]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  for (const EmbeddingShape& s : Shapes()) {
    CAPTURE(s.rows, s.places, s.vocabulary, s.units, misaligned);
    const std::vector<float> tokens = Tokens(s, 4), dy = RandomValues(s.tokens() * s.units, 5),
                             before_weight = RandomValues(s.vocabulary * s.units, 6),
                             before_positions = RandomValues(s.places * s.units, 7);
    Sums of_weight(s.vocabulary * s.units), of_positions(s.places * s.units);
    for (int64_t i = 0; i < s.tokens() * s.units; ++i) {
      const int64_t at = i / s.units, u = i % s.units;
      of_weight.Add(static_cast<int64_t>(tokens[at]) * s.units + u, dy[i]);
      of_positions.Add(at % s.places * s.units + u, dy[i]);
    }
    const DeviceArray<float> dev_tokens(*backend, tokens, misaligned),
        dev_dy(*backend, dy, misaligned);
    const auto run = [&](WriteMode weight_mode, WriteMode positions_mode, bool of_weights,
                         bool of_places) {
      const auto start = [](WriteMode mode, const std::vector<float>& before) {
        return mode == WriteMode::kAdd ? before : std::vector<float>(before.size(), NAN);
      };
      const DeviceArray<float> dweight(*backend, start(weight_mode, before_weight), misaligned),
          dpositions(*backend, start(positions_mode, before_positions), misaligned);
      backend->embedding().Backward(s, dev_tokens.data(), dev_dy.data(), weight_mode,
                                    of_weights ? dweight.data() : nullptr, positions_mode,
                                    of_places ? dpositions.data() : nullptr);
      const std::vector<float> got_weight = dweight.Read(), got_positions = dpositions.Read();
      const auto added = [](WriteMode mode, const std::vector<float>& before) {
        return mode == WriteMode::kAdd ? before : std::vector<float>();
      };
      if (of_weights) of_weight.Check(got_weight, added(weight_mode, before_weight));
      if (of_places) of_positions.Check(got_positions, added(positions_mode, before_positions));
      return std::make_pair(got_weight, got_positions);
    };
    const WriteMode overwrite = WriteMode::kOverwrite, add = WriteMode::kAdd;
    const auto first = run(overwrite, add, true, true);
    CHECK(first.first == run(overwrite, overwrite, true, false).first);
    CHECK(first.second == run(add, add, false, true).second);
    run(add, overwrite, true, true);
    // Neither is wanted.
    backend->embedding().Backward(s, dev_tokens.data(), dev_dy.data(), overwrite, nullptr, add,
                                  nullptr);
    CHECK(dev_dy.Read() == dy);
  }
}

TEST_CASE("pieces of a minibatch add up to the gradient of all of it", "[embedding]") {
  const auto backend = BackendUnderTest(1);
  const EmbeddingShape s{6, 5, 4, 3};
  const std::vector<float> tokens = Tokens(s, 4), dy = RandomValues(s.tokens() * s.units, 5);
  Sums of_weight(s.vocabulary * s.units), of_positions(s.places * s.units);
  for (int64_t i = 0; i < s.tokens() * s.units; ++i) {
    of_weight.Add(static_cast<int64_t>(tokens[i / 3]) * 3 + i % 3, dy[i]);
    of_positions.Add(i % (s.places * s.units), dy[i]);
  }
  const DeviceArray<float> dev_tokens(*backend, tokens), dev_dy(*backend, dy),
      dweight(*backend, std::vector<float>(s.vocabulary * s.units, NAN)),
      dpositions(*backend, std::vector<float>(s.places * s.units, NAN));
  for (int64_t row = 0; row < 6; row += 2) {
    const EmbeddingShape piece{2, s.places, s.vocabulary, s.units};
    const WriteMode mode = row == 0 ? WriteMode::kOverwrite : WriteMode::kAdd;
    backend->embedding().Backward(piece, dev_tokens.data() + row * s.places,
                                  dev_dy.data() + row * s.places * s.units, mode, dweight.data(),
                                  mode, dpositions.data());
  }
  of_weight.Check(dweight.Read(), {});
  of_positions.Check(dpositions.Read(), {});
}

}  // namespace tessera

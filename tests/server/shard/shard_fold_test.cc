// The arithmetic of folding: the same bits whatever the order of arrival and however the model is
// sharded.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "common/rule/sgd.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

// Floats of very different sizes: their sums depend on the order.
Values Unruly(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Values values(size);
  for (float& x : values) {
    const float mantissa = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    x = std::ldexp(mantissa, static_cast<int>(random() % 24) - 12);
  }
  return values;
}

bool SameBits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("every order of arrival gives the same bits", "[shard][fold]") {
  const int64_t size = 6 * 11;
  for (const int workers : {3, 4, 5}) {
    CAPTURE(workers);
    std::vector<int> order;
    for (int member = 1; member <= workers; ++member) order.push_back(member);
    Values want;
    do {
      ShardFixture s(ZeroMatrix(6, 11), MakeBarrier(), MakeSgd({0.1f, 0.9f, 0.01f}));
      s.shard.SetPlan(PlanOfFirst(workers));
      for (int exchange = 1; exchange <= 2; ++exchange) {
        for (const int member : order) {
          REQUIRE(s.Push(member, exchange, Unruly(size, 10 * exchange + member)).ok());
        }
      }
      REQUIRE(s.version() == 2);
      if (want.empty()) want = s.Values();
      REQUIRE(SameBits(s.Values(), want));
    } while (std::next_permutation(order.begin(), order.end()));
    // The battery means nothing if these floats associate.
    Values forward(size, 0), backward(size, 0);
    for (int i = 0; i < workers; ++i) {
      const Values up = Unruly(size, 11 + i), down = Unruly(size, 10 + workers - i);
      for (int64_t k = 0; k < size; ++k) {
        forward[k] += up[k];
        backward[k] += down[k];
      }
    }
    CHECK(forward != backward);
  }
}

TEST_CASE("a commit by removal gives the bits of a commit by push", "[shard][fold]") {
  ShardFixture by_push(ZeroMatrix(6, 11), MakeBarrier(), MakeSgd({0.1f, 0.9f, 0.01f}));
  ShardFixture by_removal(ZeroMatrix(6, 11), MakeBarrier(), MakeSgd({0.1f, 0.9f, 0.01f}));
  by_push.shard.SetPlan(PlanOfFirst(2));
  by_removal.shard.SetPlan(PlanOfFirst(3));
  for (ShardFixture* s : {&by_push, &by_removal}) {
    s->MustPush(1, 1, Unruly(66, 1));
    s->MustPush(2, 1, Unruly(66, 2));
  }
  by_removal.shard.SetPlan(PlanOf(2, {{1, 1}, {2, 1}}));
  by_removal.Settle();
  CHECK(by_removal.version() == 1);
  CHECK(SameBits(by_push.Values(), by_removal.Values()));
}

ModelShape RandomModel() {
  ModelShape shape;
  shape.parameters = {{"a", 200, 7, false, 0, 0.4f, 0},
                      {"b", 200, 1, true, 0, 0.4f, 0},
                      {"c", 3, 200, false, 1, 0.1f, 0}};
  for (const ParameterSpec& p : shape.parameters) shape.size += p.size();
  return shape;
}

// Trains the whole model on `servers` shards for some exchanges of two workers.
struct Trained {
  std::vector<Values> parameters;
  uint64_t hash = 0;
};

Trained TrainOn(int servers) {
  const ModelShape shape = RandomModel();
  Trained result;
  for (const ParameterSpec& p : shape.parameters) result.parameters.emplace_back(p.size());
  for (int server = 0; server < servers; ++server) {
    ShardFixture s(shape, MakeBarrier(), MakeSgd({0.1f, 0.9f, 0.01f}), server, servers,
                   /*seed=*/42);
    s.shard.SetPlan(PlanOfFirst(2));
    for (int exchange = 1; exchange <= 3; ++exchange) {
      for (int member = 1; member <= 2; ++member) {
        Values update;
        for (const Slice& slice : s.shard.slices().slices) {
          const Values whole = Unruly(shape.parameters[slice.parameter].size(),
                                      100 * slice.parameter + 10 * exchange + member);
          update.insert(update.end(), whole.begin() + slice.row_begin * slice.columns,
                        whole.begin() + slice.row_end * slice.columns);
        }
        REQUIRE(s.Push(member, exchange, update).ok());
      }
    }
    REQUIRE(s.version() == 3);
    const Values values = s.Values();
    for (const Slice& slice : s.shard.slices().slices) {
      std::copy_n(values.begin() + slice.offset, slice.size(),
                  result.parameters[slice.parameter].begin() + slice.row_begin * slice.columns);
    }
    result.hash += s.shard.ParametersHash();
  }
  return result;
}

TEST_CASE("the number of servers changes neither parameters nor their hash", "[shard][fold]") {
  const Trained one = TrainOn(1);
  for (const int servers : {2, 5, 300}) {
    CAPTURE(servers);
    const Trained many = TrainOn(servers);
    CHECK(many.hash == one.hash);
    for (size_t p = 0; p < one.parameters.size(); ++p) {
      CHECK(SameBits(many.parameters[p], one.parameters[p]));
    }
  }
}

TEST_CASE("the hash sees one bit, and which row it is in", "[shard][fold]") {
  const auto hash_after = [](Values update) {
    ShardFixture s(ZeroMatrix(3, 2), MakeNone(1.0f), MakeAdd());
    s.shard.SetPlan(PlanOfFirst(1));
    s.MustPush(1, 1, update);
    return s.shard.ParametersHash();
  };
  CHECK(hash_after({1, 2, 3, 4, 5, 6}) == hash_after({1, 2, 3, 4, 5, 6}));
  CHECK(hash_after({1, 2, 3, 4, 5, 6}) != hash_after({3, 4, 1, 2, 5, 6}));
  CHECK(hash_after({1, 2, 3, 4, 5, 6}) != hash_after({1, 2, 3, 4, 5, std::nextafter(6.0f, 7.0f)}));
}

TEST_CASE("blocks beyond one tile and one block fold like small ones", "[shard][fold]") {
  // 3 blocks of 1 MiB and a rest; tiles of 4,096 entries do not divide a block evenly.
  const int64_t rows = 700, columns = 1201;
  ShardFixture s(ZeroMatrix(rows, columns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(2));
  Values a(rows * columns), b(rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i) {
    a[i] = static_cast<float>(i % 1000);
    b[i] = static_cast<float>(i % 77);
  }
  s.MustPush(2, 1, b);
  s.MustPush(1, 1, a);
  const Values got = s.Values();
  for (int64_t i = 0; i < rows * columns; ++i) REQUIRE(got[i] == (a[i] + b[i]) / 2);
}

TEST_CASE("a steady state takes no more blocks, with readers at work", "[shard][fold]") {
  ShardFixture s(ZeroMatrix(700, 1201), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(1));
  const Values update(700 * 1201, 1);
  int64_t allocated = 0;
  for (int exchange = 1; exchange <= 1000; ++exchange) {
    // As a worker does: the answer to the last pull may still be on its way out.
    const ReadResult held = s.shard.ReadNow();
    s.MustPush(1, exchange, update);
    if (exchange == 2) allocated = s.shard.counters().blocks_allocated;
  }
  CHECK(s.shard.counters().blocks_allocated == allocated);
  CHECK(s.shard.counters().copied_bytes_peak <= s.shard.slices().bytes());
  CHECK(s.Values().back() == 1000);
}

// Least squares by full-batch gradients: (1 / batch) X^T (X w - y) over the rows of one batch.
class LeastSquares {
 public:
  static constexpr int kInputs = 5;

  Values Gradient(const Values& w, int row_begin, int row_end) const {
    std::vector<double> gradient(kInputs, 0);
    for (int row = row_begin; row < row_end; ++row) {
      double error = -Target(row);
      for (int i = 0; i < kInputs; ++i) error += X(row, i) * w[i];
      for (int i = 0; i < kInputs; ++i) gradient[i] += error * X(row, i) / (row_end - row_begin);
    }
    return Values(gradient.begin(), gradient.end());
  }
  double Loss(const Values& w, int rows) const {
    double loss = 0;
    for (int row = 0; row < rows; ++row) {
      double error = -Target(row);
      for (int i = 0; i < kInputs; ++i) error += X(row, i) * w[i];
      loss += error * error / rows;
    }
    return loss;
  }

 private:
  static double X(int row, int i) { return std::sin(1.7 * row + 2.3 * i * i + 0.1 * row * i); }
  static double Target(int row) {
    double y = 0;
    for (int i = 0; i < kInputs; ++i) y += (i - 1.5) * X(row, i);
    return y;
  }
};

Values TrainLeastSquares(int workers, int batch) {
  const LeastSquares problem;
  ShardFixture s(ZeroMatrix(1, LeastSquares::kInputs), MakeBarrier(), MakeSgd({0.2f, 0.5f, 0}));
  s.shard.SetPlan(PlanOfFirst(workers));
  for (int step = 1; step <= 60; ++step) {
    const Values w = **s.Read(1, step - 1);
    const int first_row = (step - 1) % 7 * 40;
    for (int k = 0; k < workers; ++k) {
      const int begin = first_row + k * batch;
      REQUIRE(s.Push(k + 1, step, problem.Gradient(w, begin, begin + batch)).ok());
    }
  }
  return s.Values();
}

TEST_CASE("K workers with batch B learn what one learns with batch K B", "[shard][fold]") {
  for (const int workers : {2, 3, 5}) {
    CAPTURE(workers);
    const Values many = TrainLeastSquares(workers, 4);
    const Values one = TrainLeastSquares(1, 4 * workers);
    for (int i = 0; i < LeastSquares::kInputs; ++i) CHECK(std::abs(many[i] - one[i]) < 1e-5);
    CHECK(LeastSquares().Loss(many, 200) < 0.05 * LeastSquares().Loss(Values(5, 0), 200));
  }
}

}  // namespace
}  // namespace tessera

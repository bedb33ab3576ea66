#include "worker/data/order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Rows = std::vector<uint32_t>;

struct Job {
  Partition partition = Partition::kGlobal;
  int64_t rows = 0;
  int64_t batch = 1;
  uint64_t seed = 7;
};

EpochOrder OrderOf(const Job& job) {
  return EpochOrder({job.partition, job.seed, job.rows, job.batch});
}

EpochPlace Place(uint64_t epoch, int64_t part, int64_t parts) {
  EpochPlace place;
  place.epoch = epoch;
  place.rank = Rank(static_cast<uint64_t>(part));
  place.part = part;
  place.parts = parts;
  return place;
}

// All rows that a worker reads in an epoch, step after step.
Rows Read(const Job& job, const EpochPlace& place) {
  EpochOrder order = OrderOf(job);
  REQUIRE(order.Begin(place).ok());
  Rows read;
  for (int64_t step = 0; step < order.steps(); ++step) {
    const auto rows = order.Rows(step);
    REQUIRE(static_cast<int64_t>(rows.size()) == job.batch);
    read.insert(read.end(), rows.begin(), rows.end());
  }
  return read;
}

Rows Sorted(Rows rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

Rows Iota(uint32_t count) {
  Rows rows(count);
  std::iota(rows.begin(), rows.end(), 0u);
  return rows;
}

// Computed by hand from Philox 4x32-10 in another language, seed 7.
TEST_CASE("the order of ten rows is the one that the definition gives", "[order]") {
  REQUIRE(Read({Partition::kGlobal, 10}, Place(0, 0, 1)) == Rows{7, 0, 3, 5, 4, 2, 9, 6, 1, 8});
  REQUIRE(Read({Partition::kGlobal, 10}, Place(1, 0, 1)) == Rows{1, 2, 7, 9, 0, 5, 3, 4, 8, 6});
  REQUIRE(Read({Partition::kFull, 10}, Place(1, 0, 1)) == Rows{3, 2, 0, 9, 7, 5, 1, 4, 6, 8});
  EpochPlace rank3 = Place(1, 0, 1);
  rank3.rank = Rank(3);
  REQUIRE(Read({Partition::kFull, 10}, rank3) == Rows{7, 2, 1, 8, 3, 6, 0, 5, 9, 4});
  REQUIRE(Read({Partition::kShard, 10}, Place(1, 1, 3)) == Rows{1, 7, 4});
  REQUIRE(CalibrationRows(7, 10) == Rows{5, 4, 7, 0, 3, 8, 9, 6, 2, 1});
}

TEST_CASE("global gives part k the k-th batch of every step of one order", "[order]") {
  // Epoch 1 of seed 7 in steps of 2 parts times 2 rows: 1 2 | 7 9, 0 5 | 3 4, and 8 6 are dropped.
  REQUIRE(Read({Partition::kGlobal, 10, 2}, Place(1, 0, 2)) == Rows{1, 2, 0, 5});
  REQUIRE(Read({Partition::kGlobal, 10, 2}, Place(1, 1, 2)) == Rows{7, 9, 3, 4});
}

TEST_CASE("the parts of an epoch are disjoint and cover all but the last incomplete step",
          "[order]") {
  for (const Partition partition : {Partition::kGlobal, Partition::kShard}) {
    for (const int64_t parts : {1, 2, 3, 7}) {
      for (const int64_t batch : {1, 4, 13}) {
        const int64_t rows = 1003;
        std::set<uint32_t> seen;
        for (int64_t part = 0; part < parts; ++part) {
          for (const uint32_t row : Read({partition, rows, batch}, Place(3, part, parts))) {
            REQUIRE(row < rows);
            REQUIRE(seen.insert(row).second);
            if (partition == Partition::kShard) REQUIRE(row % parts == part);
          }
        }
        REQUIRE(static_cast<int64_t>(seen.size()) == rows / (parts * batch) * parts * batch);
      }
    }
  }
}

TEST_CASE("full gives every worker all rows in an order of its own", "[order]") {
  const Rows first = Read({Partition::kFull, 500}, Place(0, 0, 1));
  EpochPlace place = Place(0, 0, 1);
  place.rank = Rank(1);
  const Rows second = Read({Partition::kFull, 500}, place);
  REQUIRE(Sorted(first) == Iota(500));
  REQUIRE(Sorted(second) == Iota(500));
  REQUIRE(first != second);
  REQUIRE(Read({Partition::kFull, 500, 10}, Place(0, 1, 2)).size() == 250);
}

TEST_CASE("local makes as many steps as all and begins anew where its rows run out", "[order]") {
  EpochPlace place = Place(0, 0, 2);
  place.rows_total = 27;
  const Rows read = Read({Partition::kLocal, 5, 3}, place);
  REQUIRE(read.size() == 12);
  REQUIRE(Sorted(Rows(read.begin(), read.begin() + 5)) == Iota(5));
  for (size_t i = 5; i < read.size(); ++i) REQUIRE(read[i] == read[i - 5]);
  // A batch larger than the worker's files takes them several times.
  place.rows_total = 40;
  REQUIRE(Read({Partition::kLocal, 3, 8}, place).size() == 16);
}

TEST_CASE("a worker that joined in mid-epoch reads all rows in the order of its rank", "[order]") {
  EpochPlace late = Place(4, 3, 3);
  late.rank = Rank(5);
  EpochPlace alone = Place(4, 0, 3);
  alone.rank = Rank(5);
  for (const Partition partition : {Partition::kGlobal, Partition::kShard, Partition::kFull}) {
    REQUIRE(Read({partition, 100, 5}, late) == Read({Partition::kFull, 100, 5}, alone));
  }
  REQUIRE(Read({Partition::kGlobal, 100, 5}, late).size() == 30);
}

TEST_CASE("an order depends on seed and epoch, and on nothing else", "[order]") {
  const Rows rows = Read({Partition::kGlobal, 300}, Place(2, 0, 1));
  REQUIRE(Read({Partition::kGlobal, 300}, Place(2, 0, 1)) == rows);
  REQUIRE(Read({Partition::kGlobal, 300}, Place(3, 0, 1)) != rows);
  REQUIRE(Read({Partition::kGlobal, 300, 1, 8}, Place(2, 0, 1)) != rows);
  EpochOrder reused = OrderOf({Partition::kGlobal, 300});
  REQUIRE(reused.Begin(Place(9, 2, 3)).ok());
  REQUIRE(reused.Begin(Place(2, 0, 1)).ok());
  for (int64_t step = 0; step < 300; ++step) REQUIRE(reused.Rows(step)[0] == rows[step]);
}

TEST_CASE("other parts cut the same order of an epoch", "[order]") {
  // Read side by side, K parts of B rows are the order itself, for every K.
  const Rows whole = Read({Partition::kGlobal, 240}, Place(6, 0, 1));
  for (const int64_t parts : {2, 3, 5}) {
    std::vector<Rows> reads;
    for (int64_t part = 0; part < parts; ++part) {
      reads.push_back(Read({Partition::kGlobal, 240, 4}, Place(6, part, parts)));
    }
    Rows joined;
    for (size_t begin = 0; begin < reads[0].size(); begin += 4) {
      for (const Rows& read : reads) {
        joined.insert(joined.end(), read.begin() + begin, read.begin() + begin + 4);
      }
    }
    REQUIRE(std::equal(joined.begin(), joined.end(), whole.begin()));
  }
}

TEST_CASE("too few rows for one step name what to change and leave the order as it was",
          "[order]") {
  EpochOrder order = OrderOf({Partition::kGlobal, 100, 64});
  REQUIRE(order.Begin(Place(0, 0, 1)).ok());
  const Rows before(order.Rows(0).begin(), order.Rows(0).end());
  const absl::Status status = order.Begin(Place(1, 0, 2));
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(status.message()) ==
          "training rows are 100, want at least 2 workers x 64; lower train.batch_size or "
          "cluster.workers");
  REQUIRE(order.steps() == 1);
  REQUIRE(Rows(order.Rows(0).begin(), order.Rows(0).end()) == before);
}

TEST_CASE("a large order is a permutation of the rows", "[order]") {
  REQUIRE(Sorted(Read({Partition::kGlobal, 1000000, 1000}, Place(0, 0, 1))) == Iota(1000000));
}

TEST_CASE("an order takes 24 bytes a row and its buckets, of 256 rows or more", "[order]") {
  REQUIRE(EpochOrder::MemoryNeeded(1) == 24 + 3 * 4);
  REQUIRE(EpochOrder::MemoryNeeded(512) == 512 * 24 + 3 * 4);
  REQUIRE(EpochOrder::MemoryNeeded(1024) == 1024 * 24 + 5 * 4);
  REQUIRE(EpochOrder::MemoryNeeded(int64_t{1} << 30) == (int64_t{24} << 30) + (4 << 20) + 4);
}

TEST_CASE("calibration takes 2,048 rows at most, and only the part's own", "[order]") {
  REQUIRE(CalibrationRows(1, 100000).size() == 2048);
  REQUIRE(Sorted(CalibrationRows(1, 2048)) == Iota(2048));
  REQUIRE(CalibrationRows(1, 3).size() == 3);
  for (const uint32_t row : CalibrationRows(1, 100000, 2, 5)) REQUIRE(row % 5 == 2);
  const Rows few = CalibrationRows(1, 9, 0, 2);
  REQUIRE(Sorted(few) == Rows{0, 2, 4, 6, 8});
}

TEST_CASE("evaluation deals the test rows in turn", "[order]") {
  REQUIRE(EvaluationRows(7, 1, 3) == Rows{1, 4});
  REQUIRE(EvaluationRows(7, 0, 3) == Rows{0, 3, 6});
  REQUIRE(EvaluationRows(2, 2, 3).empty());
}

TEST_CASE("a partition has one of four names", "[order]") {
  REQUIRE(*ParsePartition("global") == Partition::kGlobal);
  REQUIRE(*ParsePartition("shard") == Partition::kShard);
  REQUIRE(*ParsePartition("full") == Partition::kFull);
  REQUIRE(*ParsePartition("local") == Partition::kLocal);
  REQUIRE_FALSE(ParsePartition("").ok());
}

TEST_CASE("parts of other sizes share out the rows of the same steps", "[order]") {
  const Job job{Partition::kGlobal, 100, 8};
  std::vector<Rows> whole;
  for (const Rows& part :
       {Read(job, Place(3, 0, 3)), Read(job, Place(3, 1, 3)), Read(job, Place(3, 2, 3))}) {
    for (size_t step = 0; step < part.size() / 8; ++step) {
      if (whole.size() <= step) whole.emplace_back();
      whole[step].insert(whole[step].end(), part.begin() + step * 8, part.begin() + step * 8 + 8);
    }
  }
  REQUIRE(whole.size() == 4);
  std::vector<Rows> dealt(whole.size());
  int64_t before = 0, part = 0;
  for (const int64_t rows : {2, 17, 5}) {
    EpochPlace place = Place(3, part++, 3);
    place.batch_rows = rows;
    place.rows_before = before;
    before += rows;
    EpochOrder order = OrderOf(job);
    REQUIRE(order.Begin(place).ok());
    REQUIRE(order.steps() == 4);
    for (int64_t step = 0; step < order.steps(); ++step) {
      const auto batch = order.Rows(step);
      REQUIRE(static_cast<int64_t>(batch.size()) == rows);
      dealt[step].insert(dealt[step].end(), batch.begin(), batch.end());
    }
  }
  CHECK(dealt == whole);
}

}  // namespace
}  // namespace tessera

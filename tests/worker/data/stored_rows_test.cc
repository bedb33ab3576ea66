#include "worker/data/stored_rows.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace tessera {
namespace {

using Rows = std::vector<uint32_t>;

// Row i of epoch e is eight bytes: i, and e + 1 or 0. Row 13 cannot be read.
class NumberedSource final : public ValueSource {
 public:
  bool is_bytes() const override { return true; }
  absl::Status Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const override {
    ++reads;
    if (row == 13) return absl::DataLossError("row 13");
    const uint32_t values[] = {row, epoch ? static_cast<uint32_t>(*epoch + 1) : 0};
    std::memcpy(out, values, sizeof values);
    return absl::OkStatus();
  }
  int64_t bytes() const override { return 1000; }

  mutable std::atomic<int> reads{0};
};

struct Numbered {
  explicit Numbered(int64_t rows_ahead, int threads = 1) : rows({source, 8, rows_ahead, threads}) {}

  Rows Read(uint32_t row, std::optional<uint64_t> epoch) {
    Rows values(2, 99);
    rows.Read(row, epoch, values.data());
    return values;
  }

  const std::shared_ptr<NumberedSource> source = std::make_shared<NumberedSource>();
  StoredRows rows;
};

TEST_CASE("rows are what the source gives, announced or not, in any order", "[stored_rows]") {
  const int threads = GENERATE(1, 3);
  const int64_t ahead = GENERATE(0, 1, 5, 100);
  Numbered data(ahead, threads);
  data.rows.Expect(Rows{4, 2, 9, 4}, 0);
  data.rows.Expect(Rows{7}, std::nullopt);
  CHECK(data.Read(2, 0) == Rows{2, 1});
  CHECK(data.Read(4, 0) == Rows{4, 1});
  CHECK(data.Read(4, 0) == Rows{4, 1});
  CHECK(data.Read(4, 1) == Rows{4, 2});
  CHECK(data.Read(7, std::nullopt) == Rows{7, 0});
  CHECK(data.Read(8, 6) == Rows{8, 7});
  CHECK(data.Read(9, 0) == Rows{9, 1});
  CHECK(data.rows.status().ok());
}

TEST_CASE("a row that was announced is read once, before it is asked for", "[stored_rows]") {
  Numbered data(10);
  data.rows.Expect(Rows{0, 1, 2, 3}, 0);
  while (data.source->reads < 4) std::this_thread::yield();
  for (const uint32_t row : {3u, 2u, 1u, 0u}) CHECK(data.Read(row, 0) == Rows{row, 1});
  CHECK(data.source->reads == 4);
  // It is forgotten then.
  CHECK(data.Read(0, 0) == Rows{0, 1});
  CHECK(data.source->reads == 5);
}

TEST_CASE("no more rows are read ahead than there is room for", "[stored_rows]") {
  Numbered data(3);
  CHECK(data.rows.bytes() == 1000 + 3 * 8);
  data.rows.Expect(Rows{0, 1, 2, 3, 4, 5, 6}, 0);
  while (data.source->reads < 3) std::this_thread::yield();
  CHECK(data.Read(6, 0) == Rows{6, 1});
  CHECK(data.source->reads == 4);
}

TEST_CASE("what will not be asked for is forgotten, and may be announced again", "[stored_rows]") {
  Numbered data(4, 2);
  for (int round = 0; round < 200; ++round) {
    data.rows.Expect(Rows{0, 1, 2, 3}, round);
    if (round % 3 == 0) data.rows.Forget();
    data.rows.Expect(Rows{3, 4, 5}, round);
    for (const uint32_t row : {5u, 3u, 0u}) {
      CHECK(data.Read(row, round) == Rows{row, static_cast<uint32_t>(round + 1)});
    }
    data.rows.Forget();
  }
}

TEST_CASE("several threads read announced rows at once", "[stored_rows]") {
  Numbered data(64, 2);
  std::vector<std::thread> readers;
  std::atomic<int> wrong{0};
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      for (uint32_t row = 100; row < 400; ++row) {
        if (row % 32 == 0) {
          Rows next;
          for (uint32_t i = row; i < row + 32; ++i) next.push_back(i);
          data.rows.Expect(next, 0);
        }
        Rows values(2);
        data.rows.Read(row, 0, values.data());
        if (values != Rows{row, 1}) ++wrong;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
}

TEST_CASE("a row that cannot be read is zeros, and the first failure is kept", "[stored_rows]") {
  const bool announced = GENERATE(false, true);
  Numbered data(4);
  if (announced) data.rows.Expect(Rows{13}, 0);
  CHECK(data.Read(13, 0) == Rows{0, 0});
  CHECK(data.Read(1, 0) == Rows{1, 1});
  CHECK(data.rows.status() == absl::DataLossError("row 13"));
}

}  // namespace
}  // namespace tessera

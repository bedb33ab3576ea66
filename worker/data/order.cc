#include "worker/data/order.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/method/train_rows.h"
#include "worker/data/limits.h"

namespace tessera {
namespace {

constexpr size_t kCalibrationRowsMax = 2048;
// A bucket of so many keys sorts within the first-level cache.
constexpr int64_t kBucketKeys = 256;
constexpr int kBucketBitsMax = 20;
constexpr int kKeyBits = 64;

struct SortKey {
  uint64_t key;
  uint32_t row;
};

uint64_t KeyOf(uint64_t seed, Stream stream, uint64_t a, uint64_t row) {
  const PhiloxBlock block = Philox(seed, stream, a, row);
  return block[0] | uint64_t{block[1]} << 32;
}

int BucketBits(int64_t count) {
  int bits = 1;
  // As many buckets as make each fit the cache, within a table of 2^20 counters.
  while (bits < kBucketBitsMax && (count >> bits) > kBucketKeys) ++bits;
  return bits;
}

// Sorts the rows `first`, `first + stride` and so on below `rows` by (key, row) into `out`. Keys
// are uniform, so the top bits split them into even buckets; each is sorted by itself. Keys are
// computed twice rather than held twice.
void SortRows(uint64_t seed, Stream stream, uint64_t a, int64_t rows, int64_t first, int64_t stride,
              std::vector<SortKey>& out) {
  const int64_t count = first < rows ? (rows - first + stride - 1) / stride : 0;
  const int bits = BucketBits(count);
  const int shift = kKeyBits - bits;
  std::vector<uint32_t> bucket_end((size_t{1} << bits) + 1);
  for (int64_t row = first; row < rows; row += stride) {
    ++bucket_end[(KeyOf(seed, stream, a, row) >> shift) + 1];
  }
  // Counting sort: numbers of keys become places.
  for (size_t b = 1; b < bucket_end.size(); ++b) bucket_end[b] += bucket_end[b - 1];
  out.resize(static_cast<size_t>(count));
  // Until here entry b is where bucket b begins; filling moves it to where b ends.
  for (int64_t row = first; row < rows; row += stride) {
    const uint64_t key = KeyOf(seed, stream, a, row);
    out[bucket_end[key >> shift]++] = {key, static_cast<uint32_t>(row)};
  }
  const auto before = [](const SortKey& x, const SortKey& y) {
    // Equal keys are as likely as 2^-64, and rows then decide, so that each machine sorts alike.
    return x.key != y.key ? x.key < y.key : x.row < y.row;
  };
  uint32_t begin = 0;
  for (size_t b = 0; b + 1 < bucket_end.size(); ++b) {
    std::sort(out.begin() + begin, out.begin() + bucket_end[b], before);
    begin = bucket_end[b];
  }
}

RowOrder SortedRows(uint64_t seed, Stream stream, uint64_t a, int64_t rows, int64_t first,
                    int64_t stride) {
  std::vector<SortKey> keys;
  SortRows(seed, stream, a, rows, first, stride, keys);
  auto order = std::make_shared<std::vector<uint32_t>>();
  order->reserve(keys.size());
  for (const SortKey& key : keys) order->push_back(key.row);
  return order;
}

}  // namespace

absl::StatusOr<Partition> ParsePartition(absl::string_view name) {
  if (name == "global" || name == "by_speed") return Partition::kGlobal;
  if (name == "shard") return Partition::kShard;
  if (name == "full") return Partition::kFull;
  if (name == "local") return Partition::kLocal;
  return absl::InvalidArgumentError(absl::StrCat(
      "data.partition: is \"", name, "\", want global, by_speed, shard, full or local"));
}

EpochOrder::EpochOrder(const Options& options) : options_(options) {
  TESSERA_CHECK(options.rows >= 1 && options.rows <= kRowsMax && options.batch >= 1);
}

int64_t EpochOrder::MemoryNeeded(int64_t rows) {
  // Keys are freed before the epoch begins, but both lie there for a moment.
  constexpr auto kRowBytes = static_cast<int64_t>(sizeof(uint32_t));
  const int64_t sorting = static_cast<int64_t>(sizeof(SortKey)) + kRowBytes;
  return rows * (kRowBytes + sorting) + ((int64_t{1} << BucketBits(rows)) + 1) * kRowBytes;
}

absl::Status EpochOrder::Begin(const EpochPlace& place) {
  TESSERA_CHECK(place.part >= 0 && place.part <= place.parts && place.parts >= 1);
  // The key has room for 32 bits of epoch and 24 of rank + 1.
  TESSERA_CHECK(place.epoch >> 32 == 0 && (place.rank.value() + 1) >> 24 == 0);
  const bool joined_late = place.part == place.parts;
  Partition partition = options_.partition;
  // A late worker has no part of its own: the parts were given out at the epoch's beginning.
  if (joined_late && partition != Partition::kLocal) partition = Partition::kFull;
  // Workers with different files take equally many steps, as the total is shared.
  const bool has_total = partition == Partition::kLocal && place.rows_total > 0;
  const absl::StatusOr<int64_t> steps =
      EpochSteps(has_total ? place.rows_total : options_.rows, place.parts, options_.batch);
  if (!steps.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(steps.status().message(), "; lower train.batch_size or cluster.workers"));
  }
  steps_ = *steps;
  const bool is_unequal = partition == Partition::kGlobal && place.batch_rows > 0;
  TESSERA_CHECK(!is_unequal || (place.rows_before >= 0 && place.rows_before + place.batch_rows <=
                                                              place.parts * options_.batch));
  batch_ = is_unequal ? place.batch_rows : options_.batch;

  const bool own_key = partition == Partition::kFull;
  // With an order of its own the rank is part of the key; 0 stands for the order of all.
  const uint64_t a = place.epoch | (own_key ? (place.rank.value() + 1) << 32 : 0);
  const bool own_rows = partition == Partition::kShard;
  const int64_t first = own_rows ? place.part : 0;
  const int64_t stride = own_rows ? place.parts : 1;
  const auto sort = [&] {
    return SortedRows(options_.seed, Stream::kDataOrder, a, options_.rows, first, stride);
  };
  // Nobody else reads in an order with a key or rows of one's own.
  const bool shared = options_.cache != nullptr && !own_key && !own_rows;
  rows_ = shared ? options_.cache->Get({a, first, stride}, sort) : sort();
  if (partition == Partition::kGlobal) TakePart(place);
  return absl::OkStatus();
}

// Keeps this worker's rows of the order of all.
void EpochOrder::TakePart(const EpochPlace& place) {
  auto part = std::make_shared<std::vector<uint32_t>>();
  part->reserve(static_cast<size_t>(steps_ * batch_));
  const int64_t before = place.batch_rows > 0 ? place.rows_before : place.part * batch_;
  for (int64_t step = 0; step < steps_; ++step) {
    // Step by step the workers' batches lie side by side in the order of all.
    const auto begin = rows_->begin() + step * place.parts * options_.batch + before;
    part->insert(part->end(), begin, begin + batch_);
  }
  rows_ = std::move(part);
}

absl::Span<const uint32_t> EpochOrder::Rows(int64_t step) {
  TESSERA_CHECK(step >= 0 && step < steps_);
  const std::vector<uint32_t>& rows = *rows_;
  const auto size = static_cast<int64_t>(rows.size());
  // An order that is used up begins anew, where a worker has fewer rows than steps.
  const int64_t begin = step * batch_ % size;
  if (begin + batch_ <= size) {
    return absl::MakeConstSpan(rows).subspan(begin, batch_);
  }
  wrapped_.clear();
  for (int64_t i = 0; i < batch_; ++i) wrapped_.push_back(rows[(begin + i) % size]);
  return wrapped_;
}

std::vector<uint32_t> CalibrationRows(uint64_t seed, int64_t rows, int64_t part, int64_t parts) {
  TESSERA_CHECK(part >= 0 && part < parts && rows <= kRowsMax);
  std::vector<SortKey> keys;
  SortRows(seed, Stream::kCalibration, 0, rows, part, parts, keys);
  // The first of a random order are a random sample.
  keys.resize(std::min(keys.size(), kCalibrationRowsMax));
  std::vector<uint32_t> result;
  for (const SortKey& key : keys) result.push_back(key.row);
  return result;
}

std::vector<uint32_t> EvaluationRows(int64_t rows, int64_t part, int64_t parts) {
  TESSERA_CHECK(part >= 0 && part < parts && rows <= kRowsMax);
  std::vector<uint32_t> result;
  // Every parts-th row, in order: each row is evaluated once, by one worker.
  for (int64_t row = part; row < rows; row += parts) result.push_back(static_cast<uint32_t>(row));
  return result;
}

}  // namespace tessera

#include "server/control/members/batch_sizes.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/method/train_rows.h"
#include "server/control/members/part_sizes.h"

namespace tessera {
namespace {

// Workers as fast as each other within this factor are left alone.
constexpr double kAlike = 1.1;
// A speed is known once so many minibatches were timed.
constexpr uint64_t kStepsTimed = 4;

// Integers next to `sizes`, whose sum is `total`: the largest fractions are rounded up.
std::vector<int64_t> Rounded(absl::Span<const double> sizes, int64_t total) {
  std::vector<int64_t> rounded;
  std::vector<size_t> by_fraction;
  for (const double size : sizes) {
    rounded.push_back(static_cast<int64_t>(std::floor(size)));
    total -= rounded.back();
    by_fraction.push_back(by_fraction.size());
  }
  const auto fraction = [&](size_t i) { return sizes[i] - std::floor(sizes[i]); };
  std::stable_sort(by_fraction.begin(), by_fraction.end(),
                   [&](size_t a, size_t b) { return fraction(a) > fraction(b); });
  // What the factor leaves beside a sum of exactly `total` is less than a row.
  for (size_t i = 0; total > 0; i = (i + 1) % by_fraction.size(), --total) {
    ++rounded[by_fraction[i]];
  }
  for (size_t i = by_fraction.size(); total < 0; ++total) --rounded[by_fraction[--i]];
  return rounded;
}

}  // namespace

std::vector<int64_t> NextBatchSizes(absl::Span<const MeasuredBatches> workers, int64_t batch_size) {
  TESSERA_CHECK(!workers.empty() && batch_size >= 1);
  const auto count = static_cast<int64_t>(workers.size());
  std::vector<int64_t> sizes;
  double slowest = 0, fastest = 0, known = 0, paces = 0;
  bool are_all_placed = true;
  for (const MeasuredBatches& worker : workers) {
    sizes.push_back(worker.rows);
    are_all_placed = are_all_placed && worker.rows > 0;
    if (worker.rows_per_second <= 0) continue;
    slowest = known == 0 ? worker.steps_per_second : std::min(slowest, worker.steps_per_second);
    fastest = std::max(fastest, worker.steps_per_second);
    ++known;
    paces += worker.steps_per_second;
  }
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  const bool may_stay = are_all_placed && total == count * batch_size;
  const bool are_alike = fastest <= kAlike * slowest;
  if (may_stay && (known < static_cast<double>(count) || are_alike)) return sizes;
  // Sizes are such that all take equally long: whose speed is not known at present makes its minibatches at the pace of
  // the others. One that had none is taken for as fast as these are on average.
  const double pace = known > 0 ? paces / known : 1;
  std::vector<double> speeds;
  double placed = 0, sum = 0;
  for (const MeasuredBatches& worker : workers) {
    speeds.push_back(worker.rows_per_second > 0 ? worker.rows_per_second
                                                : static_cast<double>(worker.rows) * pace);
    sum += speeds.back();
    if (speeds.back() > 0) ++placed;
  }
  for (double& speed : speeds) {
    if (speed <= 0) speed = placed > 0 ? sum / placed : 1;
  }
  const auto batch = static_cast<double>(batch_size);
  const int64_t least = std::min(batch_size, std::max<int64_t>(2, batch_size / kBatchLeastPart));
  std::vector<double> wanted =
      BoundedSizes(speeds, static_cast<double>(least) / batch, static_cast<double>(kBatchMost));
  for (double& size : wanted) size *= batch;
  return Rounded(wanted, count * batch_size);
}

MeasuredBatches BatchesOf(const MemberRecord& member, int64_t rows, int64_t batch_size) {
  const v1::Progress& said = member.progress;
  MeasuredBatches measured{rows, 0, 0};
  const bool is_known = said.steps_per_second() > 0 && said.speed_steps() >= kStepsTimed;
  const bool is_given =
      said.batch_rows() > 0 && said.batch_rows() <= static_cast<uint64_t>(kBatchMost * batch_size);
  if (!is_known || !is_given) return measured;
  measured.steps_per_second = said.steps_per_second();
  measured.rows_per_second = said.steps_per_second() * static_cast<double>(said.batch_rows());
  return measured;
}

}  // namespace tessera

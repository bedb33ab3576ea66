#include "worker/data/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "common/base/check.h"
#include "common/layout/losses.h"
#include "kernels/cpu/threads.h"
#include "worker/data/number_array.h"
#include "worker/data/rescale.h"

namespace tessera {
namespace {

// A stored u8 value 255 is the number 1.
constexpr double kU8Unit = 255;

constexpr int64_t kCacheLineBytes = 64;
// The hardware follows a long row by itself.
constexpr int64_t kPrefetchBytesMax = 2048;

// Rows are read at random: asking for the next one while this one is converted hides its latency.
void Prefetch(const void* row, int64_t row_bytes) {
  const auto* const bytes = static_cast<const char*>(row);
  for (int64_t i = 0; i < std::min(row_bytes, kPrefetchBytesMax); i += kCacheLineBytes) {
    __builtin_prefetch(bytes + i);
  }
}

class Summer {
 public:
  template <typename T>
  void Add(const NumberArray<T>& values) {
    Add(static_cast<uint64_t>(values.size()));
    XXH3_64bits_update(state_.get(), values.data(), values.size() * sizeof(T));
  }
  void Add(uint64_t number) { XXH3_64bits_update(state_.get(), &number, sizeof(number)); }
  void operator()(const U8Values& values) { Add(values); }
  void operator()(const F32Values& values) { Add(values); }
  void operator()(const Classes& classes) { Add(classes); }
  void operator()(const SparseValues& values) {
    Add(values.begin);
    Add(values.feature);
    Add(values.value);
  }
  void operator()(const ClassSets& sets) {
    Add(sets.begin);
    Add(sets.classes);
  }
  uint64_t sum() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> state_ = [] {
    std::unique_ptr<XXH3_state_t, Free> made(XXH3_createState());
    XXH3_64bits_reset(made.get());
    return made;
  }();
};

}  // namespace

Dataset::Dataset(Table table, const Normalization& normalization, const ModelEnds& ends)
    : table_(std::move(table)), outputs_(ends.outputs) {
  TESSERA_CHECK(table_.rows > 0 && table_.features == ends.inputs);
  TESSERA_CHECK(ends.sigmoid || ends.numbers || has_classes());
  const double unit = std::holds_alternative<U8Values>(table_.values) ? kU8Unit : 1;
  const size_t count = normalization.mean.size();
  TESSERA_CHECK(normalization.stddev.size() == count);
  TESSERA_CHECK(count == 1 || static_cast<int64_t>(count) == table_.features);
  for (size_t j = 0; j < count; ++j) {
    centre_.push_back(static_cast<float>(normalization.mean[j] * unit));
    scale_.push_back(static_cast<float>(1 / (normalization.stddev[j] * unit)));
  }
  if (!std::holds_alternative<SparseValues>(table_.values)) return;
  zeros_.resize(table_.features);
  for (int64_t j = 0; j < table_.features; ++j) {
    const int64_t i = uniform() ? 0 : j;
    zeros_[j] = (0 - centre_[i]) * scale_[i];
  }
}

int64_t Dataset::bytes() const {
  return table_.bytes() +
         static_cast<int64_t>((centre_.size() + scale_.size() + zeros_.size()) * sizeof(float));
}

uint64_t Dataset::Sum() const {
  Summer summer;
  summer.Add(static_cast<uint64_t>(table_.rows));
  summer.Add(static_cast<uint64_t>(table_.features));
  std::visit([&summer](const auto& values) { summer(values); }, table_.values);
  std::visit([&summer](const auto& labels) { summer(labels); }, table_.labels);
  return std::max<uint64_t>(1, summer.sum());
}

bool Dataset::can_be_sparse() const {
  return std::holds_alternative<SparseValues>(table_.values) &&
         std::all_of(zeros_.begin(), zeros_.end(), [](float zero) { return zero == 0; });
}

bool Dataset::sparse() const {
  if (!can_be_sparse()) return false;
  const auto entries = static_cast<int64_t>(std::get<SparseValues>(table_.values).value.size());
  // Divided, as the product of rows and features may not fit.
  const bool nearly_empty = entries / table_.rows < table_.features / kSparseShareInverse;
  return table_.always_sparse || (table_.features >= kSparseFeaturesMin && nearly_empty);
}

int64_t Dataset::row_entries_max() const {
  const auto* const values = std::get_if<SparseValues>(&table_.values);
  if (values == nullptr) return table_.features;
  int64_t most = 0;
  for (int64_t i = 0; i < table_.rows; ++i) {
    most = std::max(most, values->begin[i + 1] - values->begin[i]);
  }
  return most;
}

void Dataset::FillBatch(absl::Span<const uint32_t> rows, const BatchView& out, int threads) const {
  for (const uint32_t row : rows) TESSERA_CHECK(row < table_.rows);
  if (out.features != nullptr) {
    const int64_t count = static_cast<int64_t>(rows.size()), n = table_.features;
    std::visit(
        [&](const auto& values) {
          CpuThreads(threads).SplitWhole(count, n, [&](int64_t begin, int64_t end) {
            FillFeatures(values, rows.subspan(begin, end - begin), out.features + begin * n);
          });
        },
        table_.values);
  }
  if (out.sparse != nullptr) FillSparse(rows, out.sparse);
  if (out.classes != nullptr) {
    const Classes* const classes = std::get_if<Classes>(&table_.labels);
    TESSERA_CHECK(classes != nullptr);
    for (size_t b = 0; b < rows.size(); ++b) out.classes[b] = (*classes)[rows[b]];
  }
  if (out.targets != nullptr) {
    std::visit([&](const auto& labels) { FillTargets(labels, rows, out.targets); }, table_.labels);
  }
}

void Dataset::FillFeatures(const U8Values& values, absl::Span<const uint32_t> rows,
                           float* out) const {
  const int64_t n = table_.features;
  for (size_t b = 0; b < rows.size(); ++b) {
    const uint8_t* const x = values.data() + rows[b] * n;
    if (b + 1 < rows.size()) Prefetch(values.data() + rows[b + 1] * n, n * sizeof *x);
    if (uniform()) {
      RescaleU8(x, n, centre_[0], scale_[0], out);
    } else {
      RescaleU8(x, n, centre_.data(), scale_.data(), out);
    }
    out += n;
  }
}

void Dataset::FillFeatures(const F32Values& values, absl::Span<const uint32_t> rows,
                           float* out) const {
  const int64_t n = table_.features;
  const bool as_stored = uniform() && centre_[0] == 0 && scale_[0] == 1;
  for (size_t b = 0; b < rows.size(); ++b) {
    const float* const x = values.data() + rows[b] * n;
    if (b + 1 < rows.size()) Prefetch(values.data() + rows[b + 1] * n, n * sizeof *x);
    if (as_stored) {
      std::memcpy(out, x, n * sizeof(float));
    } else if (uniform()) {
      RescaleF32(x, n, centre_[0], scale_[0], out);
    } else {
      RescaleF32(x, n, centre_.data(), scale_.data(), out);
    }
    out += n;
  }
}

void Dataset::FillFeatures(const SparseValues& values, absl::Span<const uint32_t> rows,
                           float* out) const {
  for (const uint32_t row : rows) {
    std::memcpy(out, zeros_.data(), zeros_.size() * sizeof(float));
    for (int64_t e = values.begin[row]; e < values.begin[row + 1]; ++e) {
      const uint32_t j = values.feature[e];
      const uint32_t i = uniform() ? 0 : j;
      out[j] = (values.value[e] - centre_[i]) * scale_[i];
    }
    out += table_.features;
  }
}

void Dataset::FillSparse(absl::Span<const uint32_t> rows, SparseBatch* out) const {
  TESSERA_CHECK(can_be_sparse());
  const auto& values = std::get<SparseValues>(table_.values);
  out->begin.assign(1, 0);
  out->column.clear();
  out->value.clear();
  for (const uint32_t row : rows) {
    for (int64_t e = values.begin[row]; e < values.begin[row + 1]; ++e) {
      const uint32_t j = values.feature[e];
      const uint32_t i = uniform() ? 0 : j;
      out->column.push_back(static_cast<int32_t>(j));
      out->value.push_back((values.value[e] - centre_[i]) * scale_[i]);
    }
    out->begin.push_back(static_cast<int64_t>(out->value.size()));
  }
}

void Dataset::FillTargets(const Classes& classes, absl::Span<const uint32_t> rows,
                          float* out) const {
  if (outputs_ == 1) {
    for (size_t b = 0; b < rows.size(); ++b) out[b] = static_cast<float>(classes[rows[b]]);
    return;
  }
  std::memset(out, 0, rows.size() * outputs_ * sizeof(float));
  for (size_t b = 0; b < rows.size(); ++b) out[b * outputs_ + classes[rows[b]]] = 1;
}

void Dataset::FillTargets(const ClassSets& sets, absl::Span<const uint32_t> rows,
                          float* out) const {
  std::memset(out, 0, rows.size() * outputs_ * sizeof(float));
  for (const uint32_t row : rows) {
    for (int64_t e = sets.begin[row]; e < sets.begin[row + 1]; ++e) out[sets.classes[e]] = 1;
    out += outputs_;
  }
}

void Dataset::FillTargets(const F32Values& numbers, absl::Span<const uint32_t> rows,
                          float* out) const {
  for (size_t b = 0; b < rows.size(); ++b) out[b] = numbers[rows[b]];
}

TableSpec TableSpecOf(const ModelEnds& ends) {
  TableSpec spec;
  spec.features = ends.inputs;
  spec.input = ends.input;
  spec.numbers = ends.numbers;
  // One sigmoid output tells two classes apart.
  spec.one_output = ends.sigmoid && ends.outputs == 1;
  spec.classes = spec.one_output ? 2 : ends.outputs;
  spec.class_sets = ends.sigmoid && ends.outputs > 1;
  return spec;
}

ModelEnds EndsOf(const v1::Model& model, const ModelShape& shape) {
  ModelEnds ends;
  ends.inputs = shape.inputs();
  ends.outputs = shape.outputs();
  ends.sigmoid = model.loss() == kSigmoid;
  ends.numbers = LearnsNumbers(model, ends.outputs);
  ends.input.assign(model.input().begin(), model.input().end());
  return ends;
}

}  // namespace tessera

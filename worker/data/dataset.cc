#include "worker/data/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "common/base/check.h"
#include "common/layout/losses.h"
#include "kernels/cpu/threads.h"
#include "worker/data/number_array.h"
#include "worker/data/resample.h"
#include "worker/data/rescale.h"

namespace tessera {
namespace {

// A stored u8 value 255 is the number 1.
constexpr double kU8Unit = 255;

// [channels, height, width].
constexpr size_t kImageSizes = 3;

// x86-64 and most of arm64.
constexpr int64_t kCacheLineBytes = 64;
// The hardware follows a long row by itself.
constexpr int64_t kPrefetchBytesMax = 2048;

int64_t ValueBytesOf(const Table& table) {
  return table.is_bytes() ? 1 : static_cast<int64_t>(sizeof(float));
}

// Rows are read at random: asking for the next one while this one is converted hides its latency.
void Prefetch(const void* row, int64_t row_bytes) {
  const auto* const bytes = static_cast<const char*>(row);
  for (int64_t i = 0; i < std::min(row_bytes, kPrefetchBytesMax); i += kCacheLineBytes) {
    __builtin_prefetch(bytes + i);
  }
}

class Summer {
 public:
  // The count comes first, so that values cannot be taken for the next array's.
  template <typename T>
  void Add(const NumberArray<T>& values) {
    Add(static_cast<uint64_t>(values.size()));
    XXH3_64bits_update(state_.get(), values.data(), values.size() * sizeof(T));
  }
  void Add(const char* bytes, size_t count) { XXH3_64bits_update(state_.get(), bytes, count); }
  void Add(uint64_t number) { XXH3_64bits_update(state_.get(), &number, sizeof(number)); }
  void operator()(const U8Values& values) { Add(values); }
  void operator()(const F32Values& values) { Add(values); }
  void operator()(const Classes& classes) { Add(classes); }
  // SumStored has them.
  void operator()(const StoredValues&) {}
  // Table::content_sum has both.
  void operator()(const HeldTokens&) {}
  void operator()(const NextTokens&) {}
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

// What Summer makes of the same values where they are held.
void SumStored(const Table& table, StoredRows* rows, Summer* summer) {
  std::vector<char> values(table.features * ValueBytesOf(table));
  summer->Add(static_cast<uint64_t>(table.rows * table.features));
  for (int64_t row = 0; row < table.rows; ++row) {
    rows->Read(static_cast<uint32_t>(row), std::nullopt, values.data());
    summer->Add(values.data(), values.size());
  }
}

}  // namespace

Dataset::Dataset(Table table, const Normalization& given, const ModelEnds& ends,
                 const Options& options)
    : table_(std::move(table)),
      outputs_(ends.outputs),
      places_(ends.places),
      augmentation_(options.augmentation) {
  // Rows are made faster where a constant stays in a register.
  const Normalization normalization =
      ends.input.size() == kImageSizes ? JoinChannels(given, ends.input[0]) : given;
  TESSERA_CHECK(table_.rows >= 0 && table_.features == ends.inputs);
  TESSERA_CHECK(ends.sigmoid || ends.numbers || has_classes());
  TESSERA_CHECK(ends.tokens == is_tokens() && places_ == (is_tokens() ? table_.features : 1));
  if (const auto* const source = std::get_if<StoredValues>(&table_.values)) {
    // What the source draws is drawn already.
    if ((*source)->draws()) augmentation_ = augmentation_.WithoutResizedCrop();
    // Tokens have one value more than inputs: the last label is the token behind the window.
    const int64_t row_values = table_.features + (is_tokens() ? 1 : 0);
    const int64_t row_bytes = row_values * ValueBytesOf(table_);
    stored_ = std::make_unique<StoredRows>(
        StoredRows::Options{*source, row_bytes, options.rows_ahead, options.threads_ahead});
  }
  const double unit = table_.is_bytes() ? kU8Unit : 1;
  const size_t count = normalization.mean.size();
  TESSERA_CHECK(normalization.stddev.size() == count);
  TESSERA_CHECK(count >= 1 && table_.features % static_cast<int64_t>(count) == 0);
  // Values in a row that share one constant: a channel's, all, or one.
  run_ = table_.features / static_cast<int64_t>(count);
  for (size_t j = 0; j < count; ++j) {
    centre_.push_back(static_cast<float>(normalization.mean[j] * unit));
    scale_.push_back(static_cast<float>(1 / (normalization.stddev[j] * unit)));
  }
  if (!std::holds_alternative<SparseValues>(table_.values)) return;
  // What a zero becomes is computed once for all rows.
  zeros_.resize(table_.features);
  for (int64_t j = 0; j < table_.features; ++j) {
    const int64_t i = ConstantOf(j);
    zeros_[j] = (0 - centre_[i]) * scale_[i];
  }
}

int64_t Dataset::bytes() const {
  return table_.bytes() + (stored_ != nullptr ? stored_->bytes() : 0) +
         static_cast<int64_t>((centre_.size() + scale_.size() + zeros_.size()) * sizeof(float));
}

uint64_t Dataset::Sum() const {
  Summer summer;
  summer.Add(static_cast<uint64_t>(table_.rows));
  summer.Add(static_cast<uint64_t>(table_.features));
  if (table_.content_sum != 0) {
    summer.Add(table_.content_sum);
    // 0 says that there is no sum.
    return std::max<uint64_t>(1, summer.sum());
  }
  if (stored_ != nullptr) {
    SumStored(table_, stored_.get(), &summer);
  } else {
    std::visit([&summer](const auto& values) { summer(values); }, table_.values);
  }
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
  // Few entries make products with sparse rows cheaper than dense ones.
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

void Dataset::Expect(absl::Span<const uint32_t> rows, std::optional<uint64_t> epoch) const {
  if (stored_ == nullptr) return;
  // An epoch is named only where rows differ between epochs, so that rows read ahead serve any epoch otherwise.
  stored_->Expect(rows, stored_->source().draws() ? epoch : std::nullopt);
}

void Dataset::Forget() const {
  if (stored_ != nullptr) stored_->Forget();
}

absl::Status Dataset::status() const {
  return stored_ != nullptr ? stored_->status() : absl::OkStatus();
}

uint32_t Dataset::StandIn(uint32_t row) const {
  return stored_ != nullptr ? stored_->source().StandIn(row) : row;
}

void Dataset::FillBatch(absl::Span<const uint32_t> rows, const BatchView& out, int threads,
                        std::optional<uint64_t> epoch) const {
  // Rows come from orders that others computed: a wrong one would read beyond the table.
  for (const uint32_t row : rows) TESSERA_CHECK(row < table_.rows);
  if (is_tokens()) {
    TESSERA_CHECK(out.sparse == nullptr && out.targets == nullptr);
    const int64_t count = static_cast<int64_t>(rows.size()), n = table_.features;
    // Each thread takes rows that lie together, and writes to its own part of the batch.
    CpuThreads(threads).SplitWhole(count, n, [&](int64_t begin, int64_t end) {
      FillTokens(rows.subspan(begin, end - begin), epoch,
                 out.features != nullptr ? out.features + begin * n : nullptr,
                 out.classes != nullptr ? out.classes + begin * n : nullptr);
    });
    return;
  }
  if (out.features != nullptr) {
    const int64_t count = static_cast<int64_t>(rows.size()), n = table_.features;
    std::visit(
        [&](const auto& values) {
          CpuThreads(threads).SplitWhole(count, n, [&](int64_t begin, int64_t end) {
            FillFeatures(values, rows.subspan(begin, end - begin), epoch, out.features + begin * n);
          });
        },
        table_.values);
  }
  if (out.sparse != nullptr) FillSparse(rows, out.sparse);
  if (out.classes != nullptr) {
    const Classes* const classes = std::get_if<Classes>(&table_.labels);
    TESSERA_CHECK(classes != nullptr);
    for (size_t b = 0; b < rows.size(); ++b) out.classes[b] = (*classes)[StandIn(rows[b])];
  }
  if (out.targets != nullptr) {
    std::visit([&](const auto& labels) { FillTargets(labels, rows, out.targets); }, table_.labels);
  }
}

template <typename Value>
void Dataset::RescaleRow(const Value* x, float* out) const {
  // A constant for each feature: vectors of constants. Else a constant for each run of features, in a register.
  if (run_ == 1) return Rescale(x, table_.features, centre_.data(), scale_.data(), out);
  for (size_t k = 0; k < centre_.size(); ++k, x += run_, out += run_) {
    Rescale(x, run_, centre_[k], scale_[k], out);
  }
}

template <typename Value>
void Dataset::FillRow(const Value* x, uint32_t row, Epoch epoch, float* out) const {
  const int64_t n = table_.features;
  if (epoch.has_value() && !augmentation_.empty()) {
    // Threads keep it for the next row.
    thread_local std::vector<Value> changed;
    thread_local Resampler resampler;
    if (changed.size() < static_cast<size_t>(n)) changed.resize(n);
    augmentation_.Apply(x, *epoch, row, &resampler, changed.data());
    x = changed.data();
  }
  // Nothing would change a value: a copy is as fast as memory is.
  const bool as_stored =
      std::is_same_v<Value, float> && uniform() && centre_[0] == 0 && scale_[0] == 1;
  if (as_stored) {
    std::memcpy(out, x, n * sizeof(float));
  } else {
    RescaleRow(x, out);
  }
}

void Dataset::FillFeatures(const U8Values& values, absl::Span<const uint32_t> rows, Epoch epoch,
                           float* out) const {
  const int64_t n = table_.features;
  for (size_t b = 0; b < rows.size(); ++b, out += n) {
    if (b + 1 < rows.size()) Prefetch(values.data() + rows[b + 1] * n, n);
    FillRow(values.data() + rows[b] * n, rows[b], epoch, out);
  }
}

void Dataset::FillFeatures(const F32Values& values, absl::Span<const uint32_t> rows, Epoch epoch,
                           float* out) const {
  const int64_t n = table_.features, row_bytes = n * static_cast<int64_t>(sizeof(float));
  for (size_t b = 0; b < rows.size(); ++b, out += n) {
    if (b + 1 < rows.size()) Prefetch(values.data() + rows[b + 1] * n, row_bytes);
    FillRow(values.data() + rows[b] * n, rows[b], epoch, out);
  }
}

void Dataset::FillFeatures(const StoredValues& values, absl::Span<const uint32_t> rows, Epoch epoch,
                           float* out) const {
  thread_local std::vector<float> read;
  const int64_t n = table_.features;
  if (read.size() < static_cast<size_t>(n)) read.resize(n);
  // Where every epoch has the same values, what was announced for one is right for all.
  const Epoch drawn = values->draws() ? epoch : std::nullopt;
  for (const uint32_t row : rows) {
    stored_->Read(row, drawn, read.data());
    if (values->is_bytes()) {
      FillRow(reinterpret_cast<const uint8_t*>(read.data()), row, epoch, out);
    } else {
      FillRow(read.data(), row, epoch, out);
    }
    out += n;
  }
}

void Dataset::FillFeatures(const HeldTokens&, absl::Span<const uint32_t> rows, Epoch epoch,
                           float* out) const {
  FillTokens(rows, epoch, out, nullptr);
}

void Dataset::FillTokens(absl::Span<const uint32_t> rows, Epoch epoch, float* features,
                         int32_t* classes) const {
  const int64_t n = table_.features;
  const auto* const held = std::get_if<HeldTokens>(&table_.values);
  // Kept by each thread from batch to batch.
  thread_local std::vector<float> read;
  if (held == nullptr && read.size() < static_cast<size_t>(n + 1)) read.resize(n + 1);
  for (const uint32_t row : rows) {
    if (held != nullptr) {
      const int64_t begin = (*held)->windows.BeginOf(row, epoch);
      if (features != nullptr) (*held)->tokens.Read(begin, n, features);
      if (classes != nullptr) (*held)->tokens.Read(begin + 1, n, classes);
    } else {
      stored_->Read(row, stored_->source().draws() ? epoch : std::nullopt, read.data());
      if (features != nullptr) std::copy_n(read.begin(), n, features);
      if (classes != nullptr) std::copy_n(read.begin() + 1, n, classes);
    }
    if (features != nullptr) features += n;
    if (classes != nullptr) classes += n;
  }
}

void Dataset::FillFeatures(const SparseValues& values, absl::Span<const uint32_t> rows, Epoch,
                           float* out) const {
  for (const uint32_t row : rows) {
    // Entries that are not stored are zeros before they are normalised.
    std::memcpy(out, zeros_.data(), zeros_.size() * sizeof(float));
    for (int64_t e = values.begin[row]; e < values.begin[row + 1]; ++e) {
      const uint32_t j = values.feature[e];
      const int64_t i = ConstantOf(j);
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
      const int64_t i = ConstantOf(j);
      out->column.push_back(static_cast<int32_t>(j));
      out->value.push_back((values.value[e] - centre_[i]) * scale_[i]);
    }
    out->begin.push_back(static_cast<int64_t>(out->value.size()));
  }
}

void Dataset::FillTargets(const Classes& classes, absl::Span<const uint32_t> rows,
                          float* out) const {
  if (outputs_ == 1) {
    for (size_t b = 0; b < rows.size(); ++b) {
      out[b] = static_cast<float>(classes[StandIn(rows[b])]);
    }
    return;
  }
  std::memset(out, 0, rows.size() * outputs_ * sizeof(float));
  for (size_t b = 0; b < rows.size(); ++b) {
    out[b * outputs_ + classes[StandIn(rows[b])]] = 1;
  }
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

void Dataset::FillTargets(const NextTokens&, absl::Span<const uint32_t>, float*) const {
  TESSERA_CHECK(!"tokens are classes");
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
  if (model.has_tokens()) {
    ends.tokens = true;
    ends.inputs = ends.places = model.tokens().context();
    ends.outputs = model.tokens().vocabulary();
  }
  ends.numbers = !ends.tokens && LearnsNumbers(model, ends.outputs);
  ends.input.assign(model.input().begin(), model.input().end());
  return ends;
}

Datasets NoRows() {
  const auto none = [] {
    Table table;
    table.values = F32Values();
    table.labels = Classes();
    return Dataset(std::move(table), Normalization(), ModelEnds());
  };
  return {none(), none()};
}

}  // namespace tessera

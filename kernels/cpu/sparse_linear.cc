#include "kernels/cpu/sparse_linear.h"

#include <omp.h>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

constexpr int64_t kWidth = kSparseBlockOutputs;
// Rows of W that are walked through side by side: so many streams the hardware can follow.
constexpr int64_t kStreams = 4;

// panel[p][o] = w[o][columns[p]] for `count` rows of w; lanes beyond are 0.
void GatherColumns(const float* w, int64_t inputs, int64_t count,
                   const std::vector<int32_t>& columns, float* panel) {
  const auto present = static_cast<int64_t>(columns.size());
  // Lanes beyond `count` are multiplied like the others; zeros keep old values, which might be NaN, out of them.
  if (count < kWidth) std::fill_n(panel, present * kWidth, 0.0f);
  int64_t o = 0;
  for (; o + kStreams <= count; o += kStreams) {
    const float* const row[kStreams] = {w + o * inputs, w + (o + 1) * inputs, w + (o + 2) * inputs,
                                        w + (o + 3) * inputs};
    float* to = panel + o;
    for (int64_t p = 0; p < present; ++p, to += kWidth) {
      const int32_t c = columns[p];
      for (int64_t i = 0; i < kStreams; ++i) to[i] = row[i][c];
    }
  }
  for (; o < count; ++o) {
    for (int64_t p = 0; p < present; ++p) panel[p * kWidth + o] = w[o * inputs + columns[p]];
  }
}

// put(w[o][columns[p]], panel[p][o]) for `count` rows of w.
template <typename Put>
void ScatterColumns(const float* panel, int64_t inputs, int64_t count,
                    const std::vector<int32_t>& columns, const Put& put, float* w) {
  const auto present = static_cast<int64_t>(columns.size());
  int64_t o = 0;
  for (; o + kStreams <= count; o += kStreams) {
    float* const row[kStreams] = {w + o * inputs, w + (o + 1) * inputs, w + (o + 2) * inputs,
                                  w + (o + 3) * inputs};
    const float* from = panel + o;
    for (int64_t p = 0; p < present; ++p, from += kWidth) {
      const int32_t c = columns[p];
      for (int64_t i = 0; i < kStreams; ++i) put(row[i][c], from[i]);
    }
  }
  for (; o < count; ++o) {
    for (int64_t p = 0; p < present; ++p) put(w[o * inputs + columns[p]], panel[p * kWidth + o]);
  }
}

// out[r][i] = initial[i] + the sum of value[e] * panel[place[e]][i] over the entries e of run r,
// [begin[r], begin[r + 1]) after begin[0].
// A run's sum is one chain in the order of its entries, so that it does not depend on how blocks are split.
TESSERA_VECTOR_CLONES void SumRuns(int64_t runs, const int64_t* begin, const int32_t* place,
                                   const float* value, const float* panel, const float* initial,
                                   float* out) {
  int64_t e = 0;
  for (int64_t r = 0; r < runs; ++r, out += kWidth) {
    const int64_t end = begin[r + 1] - begin[0];
    float sum[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) sum[i] = initial[i];
    for (; e < end; ++e) {
      const float* const from = panel + place[e] * kWidth;
#pragma omp simd
      for (int64_t i = 0; i < kWidth; ++i) sum[i] += value[e] * from[i];
    }
    for (int64_t i = 0; i < kWidth; ++i) out[i] = sum[i];
  }
}

constexpr float kZeros[kWidth] = {};

}  // namespace

template <typename F>
void CpuSparseLinear::ForBlocks(const LinearShape& shape, const F& f) {
  scratch_.resize(threads_.count());
  for (Scratch& scratch : scratch_) {
    if (scratch.panel.size() < batch_.columns().size() * kWidth) {
      scratch.panel.resize(batch_.columns().size() * kWidth);
    }
    if (static_cast<int64_t>(scratch.block.size()) < shape.rows * kWidth) {
      scratch.block.resize(shape.rows * kWidth);
    }
  }
  const int64_t cost = batch_.entries() + 2 * static_cast<int64_t>(batch_.columns().size());
  threads_.Split(shape.outputs, cost, [&](int64_t begin, int64_t end) {
    Scratch& scratch = scratch_[omp_get_thread_num()];
    for (int64_t o = begin; o < end; o += kWidth) f(o, std::min(kWidth, end - o), &scratch);
  });
}

void CpuSparseLinear::Forward(const LinearShape& shape, const SparseRows& x, const float* weight,
                              const float* bias, float* y) {
  if (shape.rows == 0 || shape.outputs == 0) return;
  batch_.Find(shape, x);
  batch_.PlaceEntries(x);
  ForBlocks(shape, [&](int64_t o, int64_t count, Scratch* scratch) {
    GatherColumns(weight + o * shape.inputs, shape.inputs, count, batch_.columns(),
                  scratch->panel.data());
    float initial[kWidth] = {};
    if (bias != nullptr) std::copy_n(bias + o, count, initial);
    float* const block = scratch->block.data();
    SumRuns(shape.rows, x.begin, batch_.slot().data(), x.value + batch_.first_entry(),
            scratch->panel.data(), initial, block);
    for (int64_t row = 0; row < shape.rows; ++row) {
      std::copy_n(block + row * kWidth, count, y + row * shape.outputs + o);
    }
  });
}

void CpuSparseLinear::SumColumns(const LinearShape& shape, const float* dy, int64_t first,
                                 int64_t count, Scratch* scratch) const {
  float* const block = scratch->block.data();
  if (count < kWidth) std::fill_n(block, shape.rows * kWidth, 0.0f);
  for (int64_t row = 0; row < shape.rows; ++row) {
    std::copy_n(dy + row * shape.outputs + first, count, block + row * kWidth);
  }
  SumRuns(batch_.columns().size(), batch_.by_column().begin.data(), batch_.by_column().row.data(),
          batch_.by_column().value.data(), block, kZeros, scratch->panel.data());
}

void CpuSparseLinear::WeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy,
                                     WriteMode mode, TouchedColumns* touched, float* dweight) {
  if (shape.outputs == 0) return;
  if (mode == WriteMode::kAdd) {
    AddWeightGradient(shape, x, dy, 1.0f, dweight);
    touched->Note(batch_.columns(), mode);
    return;
  }
  batch_.Find(shape, x);
  batch_.SortByColumn(shape, x);
  // Columns that the last batch touched and this one lacks still hold its gradient. Only these are zeroed: the whole
  // matrix would cost more than the product.
  const std::vector<int32_t>& before = touched->columns;
  ForBlocks(shape, [&](int64_t o, int64_t count, Scratch* scratch) {
    SumColumns(shape, dy, o, count, scratch);
    float* const rows = dweight + o * shape.inputs;
    for (int64_t i = 0; i < count; ++i) {
      for (const int32_t c : before) rows[i * shape.inputs + c] = 0;
    }
    const auto put = [](float& to, float value) { to = value; };
    ScatterColumns(scratch->panel.data(), shape.inputs, count, batch_.columns(), put, rows);
  });
  touched->Note(batch_.columns(), mode);
}

void CpuSparseLinear::AddWeightGradient(const LinearShape& shape, const SparseRows& x,
                                        const float* dy, float a, float* weight) {
  if (shape.outputs == 0) return;
  batch_.Find(shape, x);
  batch_.SortByColumn(shape, x);
  ForBlocks(shape, [&](int64_t o, int64_t count, Scratch* scratch) {
    SumColumns(shape, dy, o, count, scratch);
    const auto add = [a](float& to, float value) { to += a * value; };
    ScatterColumns(scratch->panel.data(), shape.inputs, count, batch_.columns(), add,
                   weight + o * shape.inputs);
  });
}

}  // namespace tessera

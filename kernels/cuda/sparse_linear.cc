#include "kernels/cuda/sparse_linear.h"

#include <algorithm>

#include "kernels/cuda/sparse_linear_kernels.h"

namespace tessera {
namespace {

// The most bytes of a panel; the least panel has 32 outputs.
constexpr int64_t kPanelBytes = int64_t{64} << 20;

// Cuts a piece of so many values off the front of what is left.
template <typename T>
T* Take(int64_t count, char** left) {
  T* const taken = reinterpret_cast<T*>(*left);
  *left += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
  return taken;
}

template <typename T>
int64_t Bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
}

}  // namespace

CudaSparseLinear::Lists CudaSparseLinear::SendLists(int64_t runs, const int64_t* begin,
                                                    const int32_t* place, const float* value,
                                                    const std::vector<int32_t>& before) {
  const int64_t entries = batch_.entries();
  const auto clears = static_cast<int64_t>(before.size());
  // One allocation for all lists, in pieces aligned to 16 bytes.
  char* left = static_cast<char*>(
      lists_.Of(Bytes<int64_t>(runs + 1) + Bytes<int32_t>(batch_.present()) +
                Bytes<int32_t>(entries) + Bytes<float>(entries) + Bytes<int32_t>(clears)));
  Lists lists;
  if (left == nullptr) return lists;
  const auto send = [&](const auto* from, int64_t count, auto** to) {
    using T = std::remove_pointer_t<std::remove_pointer_t<decltype(to)>>;
    *to = Take<T>(count, &left);
    memory_.CopyIn(from, count * static_cast<int64_t>(sizeof(T)), *to);
  };
  send(begin, runs + 1, &lists.begin);
  send(batch_.columns().data(), batch_.present(), &lists.columns);
  send(place, entries, &lists.place);
  send(value, entries, &lists.value);
  send(before.data(), clears, &lists.before);
  return lists;
}

template <typename F>
void CudaSparseLinear::ForBlocks(int64_t outputs, const F& f) {
  constexpr int64_t kSide = cuda::PanelTile::kSide;
  const int64_t row_bytes = std::max<int64_t>(1, batch_.present()) * 4;
  // A panel has as many outputs as fit kPanelBytes, in whole tiles of kSide.
  const int64_t fit = std::max(kSide, kPanelBytes / row_bytes / kSide * kSide);
  const int64_t width = std::min(outputs, fit);
  auto* const panel = static_cast<float*>(panel_.Of(width * row_bytes));
  if (panel == nullptr) return;
  for (int64_t o = 0; o < outputs; o += width) f(o, std::min(width, outputs - o), panel);
}

void CudaSparseLinear::Forward(const LinearShape& shape, const SparseRows& x, const float* weight,
                               const float* bias, float* y) {
  if (shape.rows == 0 || shape.outputs == 0) return;
  // The columns that the batch has, each once: only these are gathered from the weight.
  batch_.Find(shape, x);
  batch_.PlaceEntries(x);
  const Lists lists =
      SendLists(shape.rows, x.begin, batch_.slot().data(), x.value + batch_.first_entry(), {});
  if (lists.begin == nullptr) return;
  // The panel is the weight's columns of the batch, turned so that neighbouring threads read neighbouring outputs.
  ForBlocks(shape.outputs, [&](int64_t o, int64_t count, float* panel) {
    cuda::GatherColumns gather = {};
    gather.columns = lists.columns;
    gather.present = batch_.present();
    gather.inputs = shape.inputs;
    gather.outputs = count;
    gather.w = weight + o * shape.inputs;
    gather.panel = panel;
    device_.Launch(gather.blocks(), gather);
    const cuda::SumRuns sums{{},          shape.rows,   count,
                             lists.begin, lists.place,  lists.value,
                             panel,       count,        bias == nullptr ? nullptr : bias + o,
                             y + o,       shape.outputs};
    device_.Launch(sums.blocks(), sums);
  });
}

template <typename F>
void CudaSparseLinear::SumColumns(const LinearShape& shape, const Lists& lists, const float* dy,
                                  const F& scatter) {
  if (batch_.present() == 0) return;
  ForBlocks(shape.outputs, [&](int64_t o, int64_t count, float* panel) {
    const cuda::SumRuns sums{{},          batch_.present(), count,         lists.begin, lists.place,
                             lists.value, dy + o,           shape.outputs, nullptr,     panel,
                             count};
    device_.Launch(sums.blocks(), sums);
    const auto fill = [&](auto kernel) {
      kernel.columns = lists.columns;
      kernel.present = batch_.present();
      kernel.inputs = shape.inputs;
      kernel.outputs = count;
      kernel.panel = panel;
      return kernel;
    };
    scatter(o, fill);
  });
}

void CudaSparseLinear::WeightGradient(const LinearShape& shape, const SparseRows& x,
                                      const float* dy, WriteMode mode, TouchedColumns* touched,
                                      float* dweight) {
  if (shape.outputs == 0) return;
  if (mode == WriteMode::kAdd) {
    // Entries that are added need no clearing.
    AddWeightGradient(shape, x, dy, 1.0f, dweight);
    touched->Note(batch_.columns(), mode);
    return;
  }
  batch_.Find(shape, x);
  batch_.SortByColumn(shape, x);
  const SparseColumns::ByColumn& sorted = batch_.by_column();
  const Lists lists = SendLists(batch_.present(), sorted.begin.data(), sorted.row.data(),
                                sorted.value.data(), touched->columns);
  if (lists.begin == nullptr) return;
  // Columns of the last batch that this one lacks still hold its gradient; zeroing these is less than the matrix.
  const cuda::ClearColumns clear{
      {},           lists.before,  static_cast<int64_t>(touched->columns.size()),
      shape.inputs, shape.outputs, dweight};
  device_.Launch(clear.blocks(), clear);
  SumColumns(shape, lists, dy, [&](int64_t o, const auto& fill) {
    cuda::ScatterColumns<false> put = fill(cuda::ScatterColumns<false>{});
    put.w = dweight + o * shape.inputs;
    device_.Launch(put.blocks(), put);
  });
  touched->Note(batch_.columns(), mode);
}

void CudaSparseLinear::AddWeightGradient(const LinearShape& shape, const SparseRows& x,
                                         const float* dy, float a, float* weight) {
  if (shape.outputs == 0) return;
  batch_.Find(shape, x);
  batch_.SortByColumn(shape, x);
  const SparseColumns::ByColumn& sorted = batch_.by_column();
  const Lists lists =
      SendLists(batch_.present(), sorted.begin.data(), sorted.row.data(), sorted.value.data(), {});
  if (lists.begin == nullptr) return;
  SumColumns(shape, lists, dy, [&](int64_t o, const auto& fill) {
    cuda::ScatterColumns<true> add = fill(cuda::ScatterColumns<true>{});
    add.a = a;
    add.w = weight + o * shape.inputs;
    device_.Launch(add.blocks(), add);
  });
}

absl::Status CudaSparseLinear::TakeStatus() {
  absl::Status status = lists_.TakeStatus();
  status.Update(panel_.TakeStatus());
  return status;
}

}  // namespace tessera

#include "worker/data/table.h"

namespace tessera {
namespace {

template <typename T>
int64_t Bytes(const NumberArray<T>& v) {
  return static_cast<int64_t>(v.size() * sizeof(T));
}

int64_t Bytes(const SparseValues& v) { return Bytes(v.begin) + Bytes(v.feature) + Bytes(v.value); }

int64_t Bytes(const ClassSets& v) { return Bytes(v.begin) + Bytes(v.classes); }

}  // namespace

int64_t Table::bytes() const {
  const auto bytes_of = [](const auto& v) { return Bytes(v); };
  return std::visit(bytes_of, values) + std::visit(bytes_of, labels);
}

}  // namespace tessera

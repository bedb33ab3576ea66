// Sorted orders of rows that several workers of one process share.
#ifndef TESSERA_WORKER_DATA_ORDER_CACHE_H_
#define TESSERA_WORKER_DATA_ORDER_CACHE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <tuple>
#include <vector>

namespace tessera {

using RowOrder = std::shared_ptr<const std::vector<uint32_t>>;

// Where thousands of workers live in one process, as in a simulation, each epoch's order is sorted
// once and held once. One thread; all of its users read the same data with the same seed.
class OrderCache {
 public:
  // What an order depends on: the epoch part of the random key, and every `stride`th row from
  // `first` on.
  using Key = std::tuple<uint64_t, int64_t, int64_t>;

  // The order of `key`; sort() makes it where it is not there.
  RowOrder Get(const Key& key, const std::function<RowOrder()>& sort) {
    for (auto it = orders_.begin(); it != orders_.end(); ++it) {
      if (it->first != key) continue;
      orders_.splice(orders_.begin(), orders_, it);
      return it->second;
    }
    orders_.emplace_front(key, sort());
    if (orders_.size() > kOrdersMax) orders_.pop_back();
    return orders_.front().second;
  }

 private:
  // Workers are rarely more than an epoch apart.
  static constexpr size_t kOrdersMax = 4;

  std::list<std::pair<Key, RowOrder>> orders_;  // last used first
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_ORDER_CACHE_H_

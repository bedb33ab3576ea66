// Who comes before whom, among all that streams do: a vector clock for each piece of work.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_ORDER_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_ORDER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::ptx {

using Work = std::function<void()>;

// A sequence whose pieces of work follow each other, numbered from 1: a stream, or what a graph has of one, over all
// of its launches. Even and odd ones are made by turns, as each device makes a stream for kernels and one for copies.
using Line = uint32_t;

// How much of each line comes before something.
class Clock {
 public:
  uint64_t Known(Line line) const { return line < counts_.size() ? counts_[line] : 0; }
  void Raise(Line line, uint64_t count) {
    if (line >= counts_.size()) counts_.resize(line + 1);
    counts_[line] = std::max(counts_[line], count);
  }
  void Join(const Clock& other) {
    for (Line line = 0; line < other.counts_.size(); ++line) Raise(line, other.counts_[line]);
  }

 private:
  std::vector<uint64_t> counts_;
};

struct Operation {
  Line line = 0;
  uint64_t number = 0;
  Clock before;

  bool Follows(Line other, uint64_t count) const {
    return other == line || before.Known(other) >= count;
  }
};

// What the host has waited for, with which all begins that it queues. One for all threads.
inline Clock& HostClock() {
  static auto* const clock = new Clock;
  return *clock;
}

// Of which kind: 0 or 1.
inline Line NewLine(uint32_t kind) {
  static Line last = 0;
  last += (last + 1) % 2 == kind ? 1 : 2;
  return last;
}

// Null where nothing is known about what is at work.
inline const Operation*& AtWork() {
  static const Operation* operation = nullptr;
  return operation;
}

inline void DoAs(const Operation& operation, const Work& work) {
  const Operation* const before = AtWork();
  AtWork() = &operation;
  work();
  AtWork() = before;
}

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_ORDER_H_

// How many OpenMP threads a kernel uses, and how it cuts its work among them.
#ifndef TESSERA_KERNELS_CPU_THREADS_H_
#define TESSERA_KERNELS_CPU_THREADS_H_

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace tessera {

class CpuThreads {
 public:
  explicit CpuThreads(int count) : count_(count) {}
  int count() const { return count_; }

  // Readies the calling thread for products. oneDNN asks OpenMP how large a team will be, and leaves parts of a product
  // out where it turns out smaller. OpenMP keeps that per calling thread, and begins with what the environment says.
  void Enter() const {
    omp_set_dynamic(0);
    omp_set_max_active_levels(1);
    omp_set_num_threads(count_);
  }

  // The team that the calling thread really gets. It needs count() - 1 threads more, without which OpenMP ends the
  // process.
  int MeasuredTeam() const {
    Enter();
    int team = count_;
#ifdef _OPENMP
#pragma omp parallel
#pragma omp master
    team = omp_get_num_threads();
#endif
    return team;
  }

  // Calls f(begin, end) for parts that cover [0, n), on as many threads as there are parts. A part
  // is a multiple of 16 items, but for the last one, and has work of at least kWorkMin: `cost` is
  // an item's work, in values read or written.
  template <typename F>
  void Split(int64_t n, int64_t cost, const F& f) const {
    SplitBy(16, n, cost, f);
  }
  // Like Split, for items that share no cache line, such as images: a part may have any number of them.
  template <typename F>
  void SplitWhole(int64_t n, int64_t cost, const F& f) const {
    SplitBy(1, n, cost, f);
  }

 private:
  template <typename F>
  void SplitBy(int64_t step, int64_t n, int64_t cost, const F& f) const {
    const int64_t parts = std::min<int64_t>(count_, n * cost / kWorkMin);
    if (parts <= 1) {
      if (n > 0) f(int64_t{0}, n);
      return;
    }
    const int64_t size = ((n + parts - 1) / parts + step - 1) / step * step;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static)
#endif
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = std::min(n, part * size);
      const int64_t end = std::min(n, begin + size);
      if (begin < end) f(begin, end);
    }
  }

  // Waking a thread costs some microseconds, about this many values.
  static constexpr int64_t kWorkMin = 16384;
  const int count_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_THREADS_H_

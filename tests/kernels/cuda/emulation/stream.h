// A GPU's stream on the host, as lazy as a stream may be: nothing is done before somebody waits for
// it. So whoever reads results too early, reuses memory that a copy still needs, or forgets that one
// stream must wait for another, gets wrong values here every time.
#ifndef TESSERA_TESTS_KERNELS_CUDA_EMULATION_STREAM_H_
#define TESSERA_TESTS_KERNELS_CUDA_EMULATION_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace tessera::cuda {

class EmulatedStream {
 public:
  void Queue(std::function<void()> work) {
    if (record != nullptr) {
      record->push_back([this, work = std::move(work)] { Queue(work); });
      return;
    }
    queued_.push_back(std::move(work));
    ++end_;
  }
  // Set: what is queued is put down there, to be queued again and again.
  std::vector<std::function<void()>>* record = nullptr;

  // The number of all that was ever queued: a moment of this stream.
  uint64_t end() const { return end_; }
  // Does what comes before that moment.
  void RunTo(uint64_t moment) {
    while (done_ < moment) {
      const std::function<void()> work = std::move(queued_.front());
      queued_.pop_front();
      ++done_;
      work();
    }
  }

 private:
  std::deque<std::function<void()>> queued_;
  uint64_t end_ = 0;
  uint64_t done_ = 0;
};

}  // namespace tessera::cuda

#endif  // TESSERA_TESTS_KERNELS_CUDA_EMULATION_STREAM_H_

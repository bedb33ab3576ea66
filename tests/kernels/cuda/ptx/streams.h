// Streams, events and the recording of graphs, by CUDA's rules for them (CUDA C++ Programming Guide, "Creating a Graph
// Using Stream Capture"). Nothing is done before somebody waits for it.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_STREAMS_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_STREAMS_H_

#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/kernels/cuda/emulation/stream.h"

namespace tessera::ptx {

using Work = std::function<void()>;

class Stream;

// What is recorded of several streams between the beginning and the end of a capture.
struct Capture {
  // How much of each stream comes before something.
  using Clock = std::map<const Stream*, uint64_t>;

  Stream* origin = nullptr;
  std::vector<Stream*> members;
  std::map<const Stream*, Clock> clocks;
  std::shared_ptr<std::vector<Work>> work = std::make_shared<std::vector<Work>>();
  bool over = false;
};

struct Event {
  cuda::EmulatedStream* stream = nullptr;  // null: never recorded, or in a capture
  uint64_t end = 0;
  std::shared_ptr<Capture> capture;
  Capture::Clock clock;
};

class Stream {
 public:
  void Queue(Work work);
  bool captures() const { return capture_ != nullptr; }

  // cudaErrorStreamCaptureUnsupported: while it captures.
  cudaError_t Synchronize();
  void Record(Event* event);
  // cudaErrorStreamCaptureIsolation: a capture waits for what is outside of it
  // cudaErrorStreamCaptureMerge:     for another capture
  // cudaErrorCapturedEvent:          for a capture that is over, which no event stands for
  cudaError_t Wait(const Event& event);

  cudaError_t BeginCapture();
  // cudaErrorStreamCaptureUnmatched: not where it began
  // cudaErrorStreamCaptureUnjoined:  work of another stream that nothing here waits for
  cudaError_t EndCapture(std::shared_ptr<std::vector<Work>>* work);

 private:
  cuda::EmulatedStream queue_;
  std::shared_ptr<Capture> capture_;
};

// cudaErrorCapturedEvent: one that was recorded in a capture.
cudaError_t Synchronize(const Event& event);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_STREAMS_H_

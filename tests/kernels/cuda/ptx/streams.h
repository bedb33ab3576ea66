// Streams, events and the recording of graphs, by CUDA's rules for them (CUDA C++ Programming Guide, "Creating a Graph
// Using Stream Capture"). Nothing is done before somebody waits for it.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_STREAMS_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_STREAMS_H_

#include <driver_types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/kernels/cuda/emulation/stream.h"
#include "tests/kernels/cuda/ptx/order.h"

namespace tessera::ptx {

class Stream;

// What was captured, in an order that it may be done in. Numbers and clocks are of its own lines, and of one launch.
struct Recording {
  struct Node {
    Work work;
    Operation operation;
  };
  std::vector<Node> nodes;
  std::map<Line, uint64_t> totals;  // of each line, in one launch
  uint64_t launches = 0;
};

struct Capture {
  Stream* origin = nullptr;
  struct Member {
    Line line = 0;
    Clock clock;
  };
  std::map<Stream*, Member> members;
  std::shared_ptr<Recording> recording = std::make_shared<Recording>();
  bool over = false;
};

struct Event {
  cuda::EmulatedStream* stream = nullptr;  // null: never recorded, or in a capture
  uint64_t end = 0;
  std::shared_ptr<Capture> capture;
  Clock clock;
};

class Stream {
 public:
  Stream();

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
  cudaError_t EndCapture(std::shared_ptr<Recording>* recording);
  void Launch(const std::shared_ptr<Recording>& recording);

 private:
  const uint32_t kind_;
  const Line line_;
  Clock clock_;
  cuda::EmulatedStream queue_;
  std::shared_ptr<Capture> capture_;
};

// cudaErrorCapturedEvent: one that was recorded in a capture.
cudaError_t Synchronize(const Event& event);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_STREAMS_H_

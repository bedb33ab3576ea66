// One GPU, as this room sees it: its memory, two streams, and matrix products.
//
// The only door to the CUDA runtime and its libraries, which are behind device.cc and cudnn_library.cc. Tests
// link another implementation, which emulates a GPU on the host (tests/kernels/cuda/emulation).
#ifndef TESSERA_KERNELS_CUDA_DEVICE_H_
#define TESSERA_KERNELS_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "kernels/cuda/convolution_pass.h"
#include "kernels/cuda/kernel_name.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight_step.h"

namespace tessera::cuda {

// Work within a stream is done in order; streams wait for each other only where they are told to.
enum class Stream { kCompute, kCopy };

// c = op(a) op(b) + beta c, all row-major: c [rows, columns], op(a) [rows, terms], op(b) [terms,
// columns]. All extents are above 0.
struct Product {
  // How the factors a and b are rounded; c and sums are f32.
  enum class Factors { kF32, kTf32, kBf16 };
  Factors factors = Factors::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t terms = 0;
  const void* a = nullptr;
  bool a_transposed = false;  // a is stored as [terms, rows]
  const void* b = nullptr;
  bool b_transposed = false;  // b is stored as [columns, terms]
  float beta = 0;
  float* c = nullptr;
  // How far the rows of a, b and c, as they are stored, are apart; 0: they lie one behind the other.
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;

  int64_t row_of_a() const { return a_stride > 0 ? a_stride : a_transposed ? rows : terms; }
  int64_t row_of_b() const { return b_stride > 0 ? b_stride : b_transposed ? terms : columns; }
  int64_t row_of_c() const { return c_stride > 0 ? c_stride : columns; }
};

// What is queued fails later: TakeStatus and Synchronize report the first failure. After one, CUDA
// refuses everything, so that nothing but ending is left. Which kernel it was is known where
// CUDA_LAUNCH_BLOCKING=1 is in the environment: then each is waited for, and none is recorded.
//
// It has more public methods than other classes, as it is all that the room of kernels asks of CUDA, cuBLAS and cuDNN.
//
// Threading: one thread at a time, whichever. Where a process has several, none may end while
// another one records: ending cuBLAS waits for the whole GPU, which breaks a record.
class Device {
 public:
  // GPU number `ordinal` of this machine, from 0.
  //   kFailedPrecondition  no GPU, no driver or one too old, no such GPU, or one that this build
  //                        has no code for
  // The host sleeps while it waits, or it `spins`.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal, bool spins = false);
  ~Device();

  const std::string& name() const;  // "NVIDIA H200"
  int64_t memory_total() const;
  int64_t memory_free();

  // Allocates device memory, aligned to 256 bytes, above 0 bytes, contents undefined. kResourceExhausted.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  // Frees memory, after all that is queued.
  void Free(void* address);
  // Allocates page-locked host memory, zeroed.
  absl::StatusOr<void*> AllocateHost(int64_t bytes);
  void FreeHost(void* address);  // waits, too

  // Queued. `rows` pieces of `bytes`; host memory is AllocateHost's, or any where it is only read or
  // written before Synchronize returns.
  void Copy(Stream stream, const void* from, int64_t from_stride, int64_t rows, int64_t bytes,
            void* to, int64_t to_stride);
  void Zero(Stream stream, void* address, int64_t bytes);
  void Multiply(const Product& product);
  // Queues the step. False: nothing was queued, as this GPU or driver has no such step, or the arrays do not fit
  // it.
  bool StepWeight(const WeightStep& step);

  // Convolutions by a library, if this machine has it. It is looked for at the first call.
  bool HasConvolutions();
  const std::string& convolutions_name()
      const;  // "cuDNN 9.19.0"; empty: none, or not looked for yet
  // Bytes of device memory that Convolve wants for itself, kWorkspaceBytesMax at most; absent: it cannot
  // compute this pass.
  absl::optional<int64_t> ConvolutionWorkspace(const ConvolutionPass& pass);
  // Queues the pass. False: nothing was queued, as cuDNN cannot compute it after all.
  bool Convolve(const ConvolutionPass& pass, void* workspace);

  // Launches on Stream::kCompute; nothing where `blocks` is 0.
  template <typename Kernel>
  void Launch(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0 || !Admits(blocks)) return;
    NoteLaunch(LaunchOn(compute(), blocks, kernel), SignatureOf<Kernel>());
  }

  // A moment of a stream. Made once, recorded again and again; waiting for one that was never
  // recorded does not wait.
  using Event = int;
  Event MakeEvent();
  void Record(Event event, Stream stream);
  void StreamWait(Stream stream, Event event);
  void HostWait(Event event);

  // Between the two nothing is done: what is queued is recorded, on Stream::kCompute and on what is told
  // to wait for it and waited for by it in turn. Nothing is allocated, freed or waited for by the host
  // meanwhile. False: it cannot begin, and what is queued is done. kNoGraph: it could not be recorded, and was not
  // done.
  using Graph = int;
  static constexpr Graph kNoGraph = -1;
  bool BeginRecording();
  Graph EndRecording();
  // Queues all of the graph on Stream::kCompute.
  void Replay(Graph graph);
  // Tells that the graph is not needed any more; waits for nothing.
  void Drop(Graph graph);

  absl::Status Synchronize();
  absl::Status TakeStatus();

 private:
  struct State;
  explicit Device(std::unique_ptr<State> state);
  bool Admits(int64_t blocks);
  void* compute();
  void NoteLaunch(int error, const char* signature);

  const std::unique_ptr<State> state_;
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_DEVICE_H_

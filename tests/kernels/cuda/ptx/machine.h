// The one GPU of a process, which runs PTX: what runtime.cc and cublas.cc serve from.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_MACHINE_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_MACHINE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/grid.h"
#include "tests/kernels/cuda/ptx/memory.h"
#include "tests/kernels/cuda/ptx/module.h"
#include "tests/kernels/cuda/ptx/streams.h"

namespace tessera::ptx {

class Machine {
 public:
  static Machine& Get();

  // Held by every call of the API.
  std::recursive_mutex mutex;
  DeviceMemory memory{int64_t{2} << 30};
  std::map<const char*, int64_t> pinned;  // host memory -> bytes
  std::map<std::string, Entry> entries;   // of the program
  struct Kernel {
    Usage usage;
    // Of the launch that issued most.
    int64_t issued = 0, loaded = 0, stored = 0;
  };
  std::map<const Entry*, Kernel> kernels;
  int64_t products = 0;
  int64_t graphs = 0;  // launched

  void Launch(const Grid& grid);
  // Waits for work, as a call of the API does.
  static void Run(const Work& wait);
  // What a program does wrong ends it, with what and where on stderr.
  [[noreturn]] static void Refuse(const std::string& what);
  // `what` is the call.
  static void Check(cudaError_t error, const char* what);

  // At the process's end. TESSERA_PTX_REPORT names a file, behind which is written what was done: of each kernel what
  // its largest launch issued, loaded and stored (Usage), and the lines of PTX that nobody came to. Where
  // TESSERA_PTX_REACH is set, that share in percent of all kernels' instructions, and each kernel, must have been
  // reached.
  void Report() const;

  // Whether all of it is page-locked.
  bool IsPinned(const void* address, int64_t bytes) const;
  // The device's memory is touched by something that is no kernel.
  void Touch(const void* address, int64_t bytes, bool writes, const char* what);
};

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_MACHINE_H_

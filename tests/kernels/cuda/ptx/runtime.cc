// The CUDA runtime's calls that this project makes, served by a Machine. A program that is started with this library
// in LD_PRELOAD computes with it, on the very code that nvcc has made for it.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/ptx/fatbin.h"
#include "tests/kernels/cuda/ptx/grid.h"
#include "tests/kernels/cuda/ptx/machine.h"
#include "tests/kernels/cuda/ptx/module.h"

namespace tessera::ptx {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

// By the host's function for it; null: of a generation's own, without PTX, which nobody may launch here.
std::map<const void*, const Entry*>& Kernels() {
  static auto* const kernels = new std::map<const void*, const Entry*>;
  return *kernels;
}

// What was registered without PTX.
std::set<const void*>& MachineCode() {
  static auto* const registered = new std::set<const void*>;
  return *registered;
}

struct Launch {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local std::vector<Launch> launches;
thread_local Stream* capturing = nullptr;  // by this thread

Stream* Of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }
Event* Of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }
using Graph = std::shared_ptr<Recording>;
Graph* Of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Graph* Of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }

std::vector<Stream*>& Streams() {
  static auto* const streams = new std::vector<Stream*>;
  return *streams;
}

// What CUDA forbids in a thread that records.
void RefuseCapture(const char* what) {
  if (capturing != nullptr) {
    Machine::Refuse(std::string(what) + " between the beginning and the end of a capture");
  }
}

// What frees host memory waits for all that was queued.
void RunAll() {
  for (Stream* const each : Streams()) {
    if (!each->captures()) Machine::Run([each] { each->Synchronize(); });
  }
}

// Rows between any two memories, page-locked or not.
void CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
              size_t rows, cudaStream_t stream, const char* what) {
  Machine& machine = Machine::Get();
  if (width > to_pitch || width > from_pitch) {
    Machine::Refuse(std::string(what) + ": rows that are longer than their distance");
  }
  const bool to_device = machine.memory.Holds(to), from_device = machine.memory.Holds(from);
  if (Of(stream)->captures()) {
    const auto bytes = [&](size_t pitch) {
      return static_cast<int64_t>(pitch * (rows - 1) + width);
    };
    if ((!to_device && !machine.IsPinned(to, bytes(to_pitch))) ||
        (!from_device && !machine.IsPinned(from, bytes(from_pitch)))) {
      Machine::Refuse(std::string(what) + " of host memory that is not page-locked in a capture");
    }
  }
  Of(stream)->Queue([=, &machine] {
    for (size_t row = 0; row < rows; ++row) {
      char* const target = static_cast<char*>(to) + row * to_pitch;
      const char* const source = static_cast<const char*>(from) + row * from_pitch;
      const auto bytes = static_cast<int64_t>(width);
      if (from_device) machine.Touch(source, bytes, false, what);
      if (to_device) machine.Touch(target, bytes, true, what);
      std::memmove(to_device ? machine.memory.Reach(target) : target,
                   from_device ? machine.memory.Reach(source) : source, width);
    }
  });
}

}  // namespace
}  // namespace tessera::ptx

using namespace tessera::ptx;  // NOLINT: what follows are C's names

extern "C" {

void** __cudaRegisterFatBinary(void* registered) {
  try {
    const std::string ptx = PtxOf(registered);
    if (ptx.empty()) MachineCode().insert(registered);
    Machine::Get().entries.merge(ParseModule(ptx));
  } catch (const std::exception& error) {
    Machine::Refuse(error.what());
  }
  return static_cast<void**>(registered);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** registered, const char* host, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  if (MachineCode().count(registered) > 0) {
    Kernels()[host] = nullptr;
    return;
  }
  const auto& entries = Machine::Get().entries;
  const auto found = entries.find(name);
  if (found == entries.end()) Machine::Refuse(std::string("no PTX of the kernel ") + name);
  Kernels()[host] = &found->second;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                     struct CUstream_st* stream) {
  launches.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Launch launch = launches.back();
  launches.pop_back();
  *grid = launch.grid;
  *block = launch.block;
  *shared = launch.shared;
  *static_cast<void**>(stream) = launch.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  const auto found = Kernels().find(host);
  if (found == Kernels().end()) Machine::Refuse("a kernel that was never registered");
  if (found->second == nullptr) Machine::Refuse("a kernel of which there is no PTX");
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<Entry*>(found->second));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** arguments,
                               size_t shared, cudaStream_t stream) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  if (blocks.y * blocks.z * threads.y * threads.z != 1 || shared != 0) {
    Machine::Refuse("a grid of more than one dimension, or shared memory of a launch");
  }
  Grid grid;
  grid.entry = reinterpret_cast<const Entry*>(kernel);
  grid.blocks = blocks.x;
  grid.threads = static_cast<int>(threads.x);
  grid.parameters.resize(static_cast<size_t>(grid.entry->parameter_bytes));
  for (size_t k = 0; k < grid.entry->parameters.size(); ++k) {
    const Entry::Parameter& parameter = grid.entry->parameters[k];
    std::memcpy(&grid.parameters[static_cast<size_t>(parameter.offset)], arguments[k],
                static_cast<size_t>(parameter.bytes));
  }
  Of(stream)->Queue([grid, &machine] { machine.Launch(grid); });
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "PTX machine");
  properties->totalGlobalMem = static_cast<size_t>(Machine::Get().memory.total());
  properties->major = 9;
  return cudaSuccess;
}
// It has no such copies, nor products, and a backend that asks for them hears that the driver has not.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  Machine::Refuse("an attribute of a kernel");
}
cudaError_t cudaInitDevice(int, unsigned, unsigned) { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  return error == cudaErrorMemoryAllocation ? "out of memory"
                                            : "an error that the PTX machine does not name";
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  RefuseCapture("cudaMalloc");
  *address = machine.memory.Allocate(static_cast<int64_t>(bytes));
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  RefuseCapture("cudaFree");
  // It may wait for what was queued, and does not here: whoever still uses the memory finds none.
  if (address != nullptr && !machine.memory.Free(address)) {
    Machine::Refuse("cudaFree of what cudaMalloc did not give");
  }
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  RefuseCapture("cudaMallocHost");
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*address == nullptr) return cudaErrorMemoryAllocation;
  machine.pinned[static_cast<const char*>(*address)] = static_cast<int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  RefuseCapture("cudaFreeHost");
  RunAll();
  if (machine.pinned.erase(static_cast<const char*>(address)) == 0) {
    Machine::Refuse("cudaFreeHost of what cudaMallocHost did not give");
  }
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  *total = static_cast<size_t>(machine.memory.total());
  *free = *total - static_cast<size_t>(machine.memory.used());
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const Lock lock(Machine::Get().mutex);
  CopyRows(to, bytes, from, bytes, bytes, 1, stream, "cudaMemcpyAsync");
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  const Lock lock(Machine::Get().mutex);
  CopyRows(to, to_pitch, from, from_pitch, width, rows, stream, "cudaMemcpy2DAsync");
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  Of(stream)->Queue([=, &machine] {
    machine.Touch(address, static_cast<int64_t>(bytes), true, "cudaMemsetAsync");
    std::memset(machine.memory.Reach(address), value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Lock lock(Machine::Get().mutex);
  if (flags != cudaStreamNonBlocking) Machine::Refuse("a stream that waits for the stream of all");
  Streams().push_back(new Stream);
  *stream = reinterpret_cast<cudaStream_t>(Streams().back());
  return cudaSuccess;
}
// Others may still name it: it stays.
cudaError_t cudaStreamDestroy(cudaStream_t) {
  const Lock lock(Machine::Get().mutex);
  RunAll();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(Machine::Get().mutex);
  RefuseCapture("cudaStreamSynchronize");
  Machine::Run([stream] { Machine::Check(Of(stream)->Synchronize(), "cudaStreamSynchronize"); });
  return cudaSuccess;
}
// Nothing is known to be done before it is waited for.
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaErrorNotReady; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(Machine::Get().mutex);
  Machine::Check(Of(stream)->Wait(*Of(event)), "cudaStreamWaitEvent");
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock(Machine::Get().mutex);
  if (mode != cudaStreamCaptureModeThreadLocal) {
    Machine::Refuse("a capture that forbids other threads their calls");
  }
  RefuseCapture("cudaStreamBeginCapture");
  Machine::Check(Of(stream)->BeginCapture(), "cudaStreamBeginCapture");
  capturing = Of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(Machine::Get().mutex);
  auto work = std::make_unique<Graph>();
  Machine::Check(Of(stream)->EndCapture(work.get()), "cudaStreamEndCapture");
  capturing = nullptr;
  *graph = reinterpret_cast<cudaGraph_t>(work.release());
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*Of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete Of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete Of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const Lock lock(Machine::Get().mutex);
  ++Machine::Get().graphs;
  Of(stream)->Launch(*Of(graph));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete Of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(Machine::Get().mutex);
  Of(stream)->Record(Of(event));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(Machine::Get().mutex);
  RefuseCapture("cudaEventSynchronize");
  Machine::Run([event] { Machine::Check(Synchronize(*Of(event)), "cudaEventSynchronize"); });
  return cudaSuccess;
}

}  // extern "C"

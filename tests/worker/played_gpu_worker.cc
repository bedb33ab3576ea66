// tessera-worker with a GPU that the host plays in the place of "cuda".
//
//   PLAYED_GPU  what is wrong with it: no_driver | old_driver | no_gpu | old_gpu | memory=BYTES | cudnn=BYTES, of
//               memory, and a library for convolutions | launches=N, of which the last one fails
#include <cstdlib>
#include <string>

#include "tests/kernels/cuda/emulation/faults.h"
#include "tests/worker/gpu_worker.h"

namespace tessera {
namespace {

void Spoil(const std::string& what) {
  cuda::EmulatedFaults& faults = cuda::Faults();
  const std::string memory = "memory=", cudnn = "cudnn=", launches = "launches=";
  if (what == "no_driver") faults.machine.driver = 0;
  if (what == "old_driver") faults.machine.driver = 12080;
  if (what == "no_gpu") faults.machine.gpus = 0;
  if (what == "old_gpu") faults.gpu = {"NVIDIA Tesla V100", 7, 0};
  if (what.rfind(launches, 0) == 0) {
    faults.launches_left = std::stoll(what.substr(launches.size()));
  }
  if (what.rfind(cudnn, 0) == 0) {
    faults.convolutions = true;
    faults.memory_bytes = std::stoll(what.substr(cudnn.size()));
  }
  if (what.rfind(memory, 0) == 0) faults.memory_bytes = std::stoll(what.substr(memory.size()));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (const char* const what = std::getenv("PLAYED_GPU")) tessera::Spoil(what);
  return tessera::GpuWorkerCommand(argc, argv);
}

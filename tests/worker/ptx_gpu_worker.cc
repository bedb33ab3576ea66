// tessera-worker on a GPU that runs PTX (tests/kernels/cuda/ptx).
#include "tests/worker/gpu_worker.h"

int main(int argc, char** argv) { return tessera::GpuWorkerCommand(argc, argv); }

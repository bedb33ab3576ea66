// What a job chooses of a device beyond its name.
#ifndef TESSERA_KERNELS_DEVICE_OPTIONS_H_
#define TESSERA_KERNELS_DEVICE_OPTIONS_H_

namespace tessera {

struct DeviceOptions {
  // cluster.cudnn: a GPU's convolutions are cuDNN's where the machine has it.
  bool cudnn = true;
  // The host spins while it waits for the device, where it would sleep and leave its core to others. The
  // benchmark asks what that is worth.
  bool spins = false;
  // cuDNN's as well where cuBLAS is known to be faster, for the benchmark that tells where.
  bool cudnn_if_slower = false;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_DEVICE_OPTIONS_H_

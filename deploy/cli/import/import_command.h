// `tessera import MODEL [OUT] --layers JOB.yaml`: the model of another program, for a job of layers to begin with.
#ifndef TESSERA_DEPLOY_CLI_IMPORT_IMPORT_COMMAND_H_
#define TESSERA_DEPLOY_CLI_IMPORT_IMPORT_COMMAND_H_

#include <string>
#include <vector>

namespace tessera {

struct ImportOptions {
  // A safetensors file, a checkpoint's folder, or the one that has checkpoints: the newest whole one is taken.
  std::string model;
  // Empty: the file that the job names in model.init.
  std::string out_path;
  // The job whose layers the tensors are parameters of.
  std::string job_path;
  // "a.b=v", of that job.
  std::vector<std::string> overrides;
  // "fc1=layers.0": which module is which layer.
  std::vector<std::string> renamings;
  bool quiet = false;
};

// Writes the model's tensors as F32 under the names of the job's parameters, in their order: a file for model.init.
// Values are those of the model, bit for bit. Every tensor has to be a parameter and every parameter a tensor of its
// shape, but for running statistics of batch norms, which the job calibrates; all that do not fit are named. It holds
// some megabytes of the model at a time. The file appears whole or not at all. Returns the process's exit code:
//   0  it is there
//   1  the model is broken, or there is no room for the file; stderr says why
//   2  the model does not fit the job, or is not there; the job is wrong or has no layers; the file cannot be written
//      or is one of the model's
int ImportModel(const ImportOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_IMPORT_IMPORT_COMMAND_H_

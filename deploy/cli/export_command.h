// `tessera export CKPT OUT.safetensors`: the whole model of a checkpoint, in one file.
#ifndef TESSERA_DEPLOY_CLI_EXPORT_COMMAND_H_
#define TESSERA_DEPLOY_CLI_EXPORT_COMMAND_H_

#include <string>
#include <vector>

namespace tessera {

struct ExportOptions {
  // A checkpoint's folder, or the one that has them: the newest whole one is taken.
  std::string checkpoint;
  std::string out_path;
  // A job whose training rows give what the checkpoint lacks of batch norms; empty: none.
  std::string job_path;
  // "a.b=v", of that job.
  std::vector<std::string> overrides;
  bool quiet = false;
};

// Writes every parameter of the model under its name, whole, as F32; no optimizer's state. Beside them are, under
// PyTorch's names, what batch norms normalise with in evaluation, and in the metadata the labels and the
// normalisation of the inputs (docs/operating/models.md): nothing that depends on training rows is missing. Where
// subnets
// were trained, weights are multiplied by the mean share, as in evaluation, so that the file is the
// network that was scored. Whatever the model's size, it holds some megabytes of it at a time. The file
// appears whole or not at all; behind a symbolic link it is the link's target. A device or a pipe is written to as it
// is. Returns the process's exit code:
//   0  it is there
//   1  the checkpoint is broken, or there is no room for the file; stderr says why
//   2  there is no checkpoint, or `out_path` is one of its files or cannot be written; the job is wrong, or there is
//      none and the checkpoint lacks what batch norms need
int ExportCheckpoint(const ExportOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_EXPORT_COMMAND_H_

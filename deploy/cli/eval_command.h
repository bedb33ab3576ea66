// `tessera eval CKPT JOB.yaml`: the scores of a checkpoint's model on a job's test data.
#ifndef TESSERA_DEPLOY_CLI_EVAL_COMMAND_H_
#define TESSERA_DEPLOY_CLI_EVAL_COMMAND_H_

#include <string>
#include <vector>

namespace tessera {

struct EvalOptions {
  // A checkpoint's folder, or the one that has them: the newest whole one is taken.
  std::string checkpoint;
  std::string job_path;
  std::vector<std::string> overrides;
  bool json = false;
};

// Scores as the job's own evaluation at that step does, bit for bit: constants of batch norm over the
// calibration rows, test rows in the parts that the job's workers had. Holds the whole model. Returns the
// process's exit code:
//   0  the scores are on stdout
//   1  the checkpoint is broken, or is of another model than the job's; stderr says why
//   2  a bad job, or there is no checkpoint
int EvaluateCheckpoint(const EvalOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_EVAL_COMMAND_H_

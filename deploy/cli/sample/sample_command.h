// `tessera sample CKPT`: text that a checkpoint's model writes.
#ifndef TESSERA_DEPLOY_CLI_SAMPLE_SAMPLE_COMMAND_H_
#define TESSERA_DEPLOY_CLI_SAMPLE_SAMPLE_COMMAND_H_

#include <cstdint>
#include <string>

namespace tessera {

struct SampleOptions {
  // A checkpoint's folder, or the one that has them: the newest whole one is taken. A running job may write on.
  std::string checkpoint;
  // A text, or, of a model that was trained on numbered tokens, their numbers.
  std::string prompt;
  int tokens = 200;
  double temperature = 0.8;
  uint64_t seed = 1;
  std::string device = "cpu";
  int threads = 1;
};

// Writes the prompt and what follows it to stdout, each character as it comes to be, and a line's end. The same
// options and the same checkpoint give the same text on the same device. Returns the process's exit code:
//   0  the text is on stdout
//   1  the checkpoint is broken, or its model's scores are not finite; stderr says why
//   2  a bad option, or there is no checkpoint, or its model writes no text
int WriteSample(const SampleOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAMPLE_SAMPLE_COMMAND_H_

// A text that a model goes on with, token by token.
#ifndef TESSERA_DEPLOY_CLI_SAMPLE_WRITTEN_TEXT_H_
#define TESSERA_DEPLOY_CLI_SAMPLE_WRITTEN_TEXT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/sample/next_token.h"
#include "deploy/cli/sample/sampler.h"
#include "deploy/cli/sample/spelling.h"

namespace tessera {

// Gives the text of `prompt` and then of `count` tokens that are drawn behind it to `take`, piece by piece as they come
// to be; it ends where `take` returns false. An empty prompt is Spelling::Start, which is not written. The codes of
// NextToken and Sampler.
absl::Status WriteText(const std::vector<int32_t>& prompt, int64_t count, NextToken* model,
                       Sampler* sampler, Spelling* spelling,
                       const std::function<bool(absl::string_view)>& take);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAMPLE_WRITTEN_TEXT_H_

#include "deploy/cli/sample/written_text.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/check.h"

namespace tessera {

absl::Status WriteText(const std::vector<int32_t>& prompt, int64_t count, NextToken* model,
                       Sampler* sampler, Spelling* spelling,
                       const std::function<bool(absl::string_view)>& take) {
  std::vector<int32_t> tokens = prompt;
  for (const int32_t token : tokens) {
    if (!take(spelling->Write(token))) return absl::OkStatus();
  }
  if (tokens.empty()) tokens.push_back(spelling->Start());
  for (int64_t i = 0; i < count; ++i) {
    TESSERA_ASSIGN_OR_RETURN(const absl::Span<const float> scores, model->Scores(tokens));
    // What has no spelling is not drawn.
    const auto written = std::min(scores.size(), static_cast<size_t>(spelling->tokens()));
    TESSERA_ASSIGN_OR_RETURN(const int32_t token, sampler->Draw(scores.subspan(0, written)));
    tokens.push_back(token);
    if (!take(spelling->Write(token))) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace tessera

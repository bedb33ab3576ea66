// Where two jobs differ that should be one: key by key, from the canonical texts that their digests are of
// (job_digest.h). Processes send theirs along with the digest. Keys that may differ between machines are not in it,
// those of `security` with paths among them.
#ifndef TESSERA_COMMON_CONFIG_JOB_DIFFERENCE_H_
#define TESSERA_COMMON_CONFIG_JOB_DIFFERENCE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace tessera {

// The most bytes of a text that is sent, and of one that is looked at where it comes from elsewhere.
constexpr size_t kJobTextBytesMax = size_t{64} << 10;
// The most keys that Describe names; of the others it tells their number.
constexpr size_t kDifferencesNamed = 6;

// The job's text to send; empty: it is too long.
std::string JobTextToSend(const v1::Job& job);

struct KeyDifference {
  std::string key;
  // The values that the texts have; nullopt: the key is not there.
  std::optional<std::string> given;
  std::optional<std::string> wanted;
};

// The differences by key; keys that both have come first, as the others often follow from them. Empty where a text
// is empty or longer than kJobTextBytesMax: nothing can be said. The texts may be anything.
std::vector<KeyDifference> DifferencesOf(absl::string_view given, absl::string_view wanted);

// The differences in one line for a log: "train.batch_size is 64, want 32; seed is not set, want 7; and 3 keys
// more"; empty: there are none.
std::string Describe(absl::Span<const KeyDifference> differences);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_DIFFERENCE_H_

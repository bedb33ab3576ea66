// One number for a whole job: processes join each other only when theirs is the same.
//
// The digest is the SHA-256, in lower-case hex, of the job's canonical text: a line for every key
// that is not marked local in job.proto, `path=value` with a line end, sorted by bytes, after the
// line `tessera job 1`.
//   - values as they are after all defaults: numbers shortest ("0.1", "1e-05"), durations "1m30s",
//     sizes "4MiB" or plain bytes, true or false; strings in quotes with C escapes
//   - a key that is optional in job.proto has a line where the job has it
//   - a list's items are keys: model.layers.0.linear.units=64
//   - the member of a choice has a line of its own: method=local_sgd
//   - keys that a job of this kind cannot have (Key::only_in) have no line
//   - a job of tensors has two lines for the content of its file: model.tensor_layout.shapes, which tells how many
//     tensors and entries there are and a hash of their names and shapes, and model.tensor_layout.sum, a hash of the
//     values as well
// So it does not depend on the order of keys, on comments, on how a value is written or on who
// built the program, and job files may differ in what is local. A build with more keys gives
// another digest, rightly.
#ifndef TESSERA_COMMON_CONFIG_JOB_DIGEST_H_
#define TESSERA_COMMON_CONFIG_JOB_DIGEST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace tessera {

// The digest of `job`, which is resolved (ReadJob): 64 hex digits.
std::string JobDigest(const v1::Job& job);

// The text that the digest is made of; two jobs' texts show where they differ.
std::string CanonicalJobText(const v1::Job& job);

// The job that a canonical text is of, without what is local. Another build may have written it: keys and
// values that this one does not take are left out. Of a job of tensors it has the sum of the layout and no tensors.
v1::Job JobOfText(absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_DIGEST_H_

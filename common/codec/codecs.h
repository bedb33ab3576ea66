// The table of codecs: what a job's `codec` may name. A new codec is a row here (docs/adding/codec.md).
#ifndef TESSERA_COMMON_CODEC_CODECS_H_
#define TESSERA_COMMON_CODEC_CODECS_H_

#include <string>

#include "absl/types/span.h"
#include "common/codec/codec.h"
#include "proto/job.pb.h"

namespace tessera {

// Something about a key of a job's codec. `key` is below that codec's: "threshold.tau".
struct CodecRemark {
  std::string key;
  std::string message;  // empty: there is nothing to say
};

struct CodecEntry {
  v1::Codec::KindCase kind;
  // The codec of a message that has this kind. The numbers of a message without a kind mean nothing, but the codec's
  // kind() and traits() hold.
  Codec (*make)(const v1::Codec& message);
  // What is wrong with a message of this kind, beyond what proto/job.proto says of its keys. nullptr: nothing can be.
  CodecRemark (*wrong)(const v1::Codec& message);
  // A key of it that was given and has no effect. nullptr: all have.
  CodecRemark (*idle)(const v1::Codec& message);
};

absl::Span<const CodecEntry> Codecs();

// Returns the codec that `message` names; f32 where it names none.
Codec CodecOf(const v1::Codec& message);
// What the table's wrong and idle say of it.
CodecRemark WrongIn(const v1::Codec& message);
CodecRemark IdleIn(const v1::Codec& message);

// "f32, bf16 or f16": the kinds for which `is` holds, in the order of the table.
std::string KindsThat(bool (*is)(const CodecDefinition& codec));

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_CODECS_H_

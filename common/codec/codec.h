// How values are written on the wire: the choices of a job's `codec`, as plain numbers.
//
//   f32        4 bytes an entry
//   bf16, f16  2 bytes an entry, rounded to nearest even, too large finite values to the largest one
//   int8       a row: its scale max|v| / 127, then a byte an entry, rounded to nearest even
//   qsgd       a bucket of a row: its norm, then `bits` an entry, rounded at random without bias
//   threshold  (place, sign) of the entries that have reached tau; the rest stays with the sender
//
// docs/methods.md has the bytes. Where the rows of a payload are is in coded_keys.h.
#ifndef TESSERA_COMMON_CODEC_CODEC_H_
#define TESSERA_COMMON_CODEC_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace tessera {

enum class CodecKind { kF32, kBf16, kF16, kInt8, kQsgd, kThreshold };

struct Codec {
  CodecKind kind = CodecKind::kF32;
  // qsgd: 2 to 8 bits, so that an entry is one of the integers from -levels to levels.
  int bits = 8;
  int64_t bucket = 512;
  bool l2_norm = false;  // else the largest magnitude
  // threshold: a fixed one; 0: adapted, so that this share of the entries is sent.
  double tau = 0;
  double density = 0.002;
  bool packed = false;  // places are compressed

  int levels() const { return (1 << (bits - 1)) - 1; }

  friend bool operator==(const Codec& a, const Codec& b);
  friend bool operator!=(const Codec& a, const Codec& b) { return !(a == b); }
};

// How a job's values travel.
struct CodecChoice {
  Codec push;
  Codec pull;
  // What rounding a push lost is added to the next one (error_feedback.h), and where pushes are of some
  // entries what the others have changed to the next that moves them.
  bool error_feedback = false;
  // The job's last push brings, as f32, what was held back.
  bool flush = false;

  bool holds_back() const { return error_feedback || push.kind == CodecKind::kThreshold; }
};

// qsgd: a parameter with fewer entries, wherever they lie, is sent as f32.
constexpr int64_t kQsgdEntriesMin = 10000;

// Every entry is written by itself, in as many bytes as any other: f32, bf16, f16.
bool IsPlain(const Codec& codec);

// As the job says; one that says nothing is f32.
Codec CodecOf(const v1::Codec& message);

// "int8", "qsgd (8 bits, buckets of 512, max norm)". Different codecs are described differently:
// messages name them so.
std::string Describe(const Codec& codec);
// The codec that a message names: f32, which needs no name, or `own`, the job's. kInvalidArgument:
// "codec is ..., want ...".
absl::StatusOr<Codec> NamedCodec(absl::string_view name, const Codec& own);
// Of both directions: "pushes as int8 with error feedback, pulls as bf16".
std::string Describe(const CodecChoice& codecs);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_CODEC_H_

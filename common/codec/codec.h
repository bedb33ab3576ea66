// How values are written on the wire: a codec with its numbers, as a job names it.
//
// Each codec has a pair of files that answers for it (f32.h, bf16.h, f16.h, int8.h, qsgd.h, threshold.h), and a row in
// the table of codecs.h. docs/methods.md has the bytes, docs/adding/codec.md how one is added. Where the entries of a
// payload are is in coded_keys.h.
#ifndef TESSERA_COMMON_CODEC_CODEC_H_
#define TESSERA_COMMON_CODEC_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/codec/segment.h"

namespace tessera {

class SelectiveCodec;

// What becomes of the difference between an entry and what a reader sees of it.
enum class CodecLoss {
  kNone,  // there is none
  kBiased,  // entries are rounded to the nearest number: error feedback corrects it (error_feedback.h)
  kUnbiased,  // entries are rounded at random such that the mean stays
  kUnsent,    // most entries are not sent, and the sender keeps them for later pushes
};

struct CodecTraits {
  CodecLoss loss = CodecLoss::kNone;
  // Bytes that each entry takes, wherever it lies. 0: entries share headers, or not all are sent.
  int entry_bytes = 0;
  // A parameter with fewer entries, wherever they lie, is sent as f32.
  int64_t parameter_entries_min = 0;
  // However small an entry is, a reader sees one of its size, as the exponent has all of f32's bits.
  bool keeps_small = false;
  // kernels/cuda/codec has the device half. Without one, arrays are brought to the host to be coded.
  bool on_devices = false;
};

// Entries of one parameter, as far as a codec looks at them.
struct ParameterRows {
  int64_t entries = 0;
  int64_t columns = 1;            // of a row; 1: a vector
  int64_t parameter_entries = 0;  // of the whole parameter, wherever they lie
};

// What a codec answers. Immutable; any thread.
class CodecDefinition {
 public:
  // `kind`: its key in a job. `numbers`: what tells two codecs of the kind apart; empty: nothing.
  CodecDefinition(absl::string_view kind, absl::string_view numbers, const CodecTraits& traits);
  virtual ~CodecDefinition() = default;

  // "qsgd", and "qsgd (8 bits, buckets of 512, max norm)". Two codecs are the same exactly where their names are.
  const std::string& kind() const { return kind_; }
  const std::string& name() const { return name_; }
  const CodecTraits& traits() const { return traits_; }

  // How entries are written, which has one size whatever they are. Not asked of a selective codec.
  virtual Segment Write(const ParameterRows& rows) const;
  // The answers of a codec whose payloads have the entries that it selects, and so no fixed size; nullptr: not so.
  virtual const SelectiveCodec* selective() const { return nullptr; }

 private:
  const std::string kind_;
  const std::string name_;
  const CodecTraits traits_;
};

// A value: copies share the definition. f32 unless it is made otherwise.
class Codec {
 public:
  Codec();
  explicit Codec(std::shared_ptr<const CodecDefinition> definition)
      : definition_(std::move(definition)) {}

  const CodecDefinition* operator->() const { return definition_.get(); }

  friend bool operator==(const Codec& a, const Codec& b) {
    return a.definition_ == b.definition_ || a->name() == b->name();
  }
  friend bool operator!=(const Codec& a, const Codec& b) { return !(a == b); }

 private:
  std::shared_ptr<const CodecDefinition> definition_;
};

// Every entry is written by itself, in as many bytes as any other.
inline bool IsPlain(const Codec& codec) { return codec->traits().entry_bytes > 0; }

// The codec that a message names: f32, which needs no name, or `own`, the job's. kInvalidArgument:
// "codec is ..., want ...".
absl::StatusOr<Codec> NamedCodec(absl::string_view name, const Codec& own);

// How a job's values travel.
struct CodecChoice {
  Codec push;
  Codec pull;
  // What rounding a push lost is added to the next one (error_feedback.h), and where pushes are of some
  // entries what the others have changed to the next that moves them.
  bool error_feedback = false;
  // The job's last push brings, as f32, what was held back.
  bool flush = false;

  bool holds_back() const { return error_feedback || push->selective() != nullptr; }
};

// Describes both directions: "pushes as int8 with error feedback, pulls as bf16".
std::string Describe(const CodecChoice& codecs);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_CODEC_H_

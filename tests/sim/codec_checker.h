// What codecs may make of updates and values, by their definition alone (docs/methods.md#codecs).
//
//   v = update + what was held back;  a reader sees s;  v - s is held back
//
// An update is known to whoever checks. What is held back is counted here beside the worker's own count, in the
// same order of operations: both must have the same bits, whatever becomes of processes.
#ifndef TESSERA_TESTS_SIM_CODEC_CHECKER_H_
#define TESSERA_TESTS_SIM_CODEC_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/codec/coded_keys.h"

namespace tessera {

// nullopt: a reader of `values` may see `seen` of them; else what is wrong. `keys`: how they are written.
std::optional<std::string> RoundingObjection(const CodedKeys& keys,
                                             const std::vector<float>& values,
                                             const std::vector<float>& seen);

// One server's part of a push.
struct SentPart {
  // By entry sent, in the order of the wire: its number in the model, and what a reader sees.
  std::vector<int64_t> numbers;
  std::vector<float> seen;
  // How they are written; nullptr: by threshold, with this tau.
  const CodedKeys* keys = nullptr;
  float tau = 0;
};

// Methods return what is wrong; nullopt: nothing is.
class CodecChecker {
 public:
  using Objection = std::optional<std::string>;
  explicit CodecChecker(CodecChoice codecs) : codecs_(codecs) {}

  // A member begins with `held` back, by number: with what `from` held back after that exchange, or nothing.
  Objection OnBegins(MemberId member, Exchange exchange,
                     const std::optional<std::pair<MemberId, Exchange>>& from,
                     const std::vector<float>& held);
  // It is to push `updates`, by number, or some of them. `flushes`: with all that was held back.
  Objection OnPush(MemberId member, Exchange exchange, const std::vector<float>& updates,
                   const std::vector<SentPart>& parts, bool flushes);
  // And is left with this.
  Objection OnHeld(MemberId member, Exchange exchange, const std::vector<float>& held) const;
  // It leaves after this exchange, its last.
  Objection OnFlushed(MemberId member, Exchange exchange) const;

 private:
  Objection CheckPart(const SentPart& part, const std::vector<float>& values, bool flushes) const;
  // By number; nothing where nothing was ever held back.
  std::vector<float> HeldBy(MemberId member, Exchange exchange) const;

  const CodecChoice codecs_;
  std::map<std::pair<MemberId, Exchange>, std::vector<float>> held_;  // after that exchange
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_CODEC_CHECKER_H_

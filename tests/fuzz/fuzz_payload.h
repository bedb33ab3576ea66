// Payloads of bytes that lie in pieces of their own, so that a read beyond one is found.
#ifndef TESSERA_TESTS_FUZZ_FUZZ_PAYLOAD_H_
#define TESSERA_TESTS_FUZZ_FUZZ_PAYLOAD_H_

#include <algorithm>
#include <memory>

#include "absl/strings/string_view.h"
#include "common/codec/payload.h"

namespace tessera {

// Pieces of `piece` bytes, which is at least 1; the last one may be shorter.
inline Payload PiecesOf(absl::string_view bytes, size_t piece) {
  Payload payload;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::string_view part = bytes.substr(at, piece);
    const std::shared_ptr<char> memory(new char[part.size()], std::default_delete<char[]>());
    std::copy(part.begin(), part.end(), memory.get());
    payload.Append({memory.get(), static_cast<int64_t>(part.size())}, memory);
  }
  return payload;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_FUZZ_PAYLOAD_H_

#include "common/rpc/core_message.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {

v1::SparseKeys ToMessage(const CoreName& core) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "signatures are little-endian");
  const uint64_t halves[] = {core.signature.low, core.signature.high};
  v1::SparseKeys message;
  message.set_core(core.number);
  message.set_signature(std::string(reinterpret_cast<const char*>(halves), sizeof(halves)));
  return message;
}

absl::StatusOr<CoreName> CoreOf(const v1::SparseKeys& message) {
  uint64_t halves[2];
  if (message.signature().size() != sizeof(halves)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "core: signature has ", message.signature().size(), " bytes, want ", sizeof(halves)));
  }
  std::memcpy(halves, message.signature().data(), sizeof(halves));
  CoreName name;
  name.number = message.core();
  name.signature = {halves[1], halves[0]};
  return name;
}

}  // namespace tessera

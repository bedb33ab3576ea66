#include "tests/kernels/cuda/ptx/fatbin.h"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace tessera::ptx {
namespace {

struct Registered {
  uint32_t magic;
  uint32_t version;
  const char* data;
  const void* more;
};
constexpr uint32_t kRegistered = 0x466243b1;

struct Head {
  uint32_t magic;
  uint16_t version;
  uint16_t bytes;  // of this head
  uint64_t rest;   // behind it
};
constexpr uint32_t kFatbin = 0xba55ed50;

// Its layout is not documented. These fields have not moved since CUDA 5; nvcc 13 packs PTX with zstd.
struct Part {
  uint16_t kind;
  uint16_t version;
  uint32_t bytes;  // of this
  uint64_t payload;
  uint32_t packed;
  uint32_t reserved[5];
  uint64_t flags;
  uint64_t zero;
  uint64_t unpacked;
};
constexpr uint16_t kPtx = 1;

}  // namespace

std::string PtxOf(const void* registered) {
  const auto& what = *static_cast<const Registered*>(registered);
  Head head;
  std::memcpy(&head, what.data, sizeof(head));
  if (what.magic != kRegistered || head.magic != kFatbin) {
    throw std::runtime_error("the program's GPU code is in a form that is not known");
  }
  const char* at = what.data + head.bytes;
  const char* const end = at + head.rest;
  while (at < end) {
    Part part = {};
    std::memcpy(&part, at, sizeof(part));
    const char* const payload = at + part.bytes;
    at = payload + part.payload;
    if (part.kind != kPtx) continue;
    if (part.packed == 0) return std::string(payload, strnlen(payload, part.payload));
    std::string text(part.unpacked, '\0');
    const size_t bytes = ZSTD_decompress(text.data(), text.size(), payload, part.packed);
    if (ZSTD_isError(bytes)) {
      throw std::runtime_error("the program's PTX is packed otherwise than with zstd");
    }
    text.resize(strnlen(text.data(), bytes));
    return text;
  }
  return "";
}

}  // namespace tessera::ptx

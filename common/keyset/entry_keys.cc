#include "common/keyset/entry_keys.h"

#include <xxhash.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bitmaps are written as they lie");

// Appends a varint: seven bits per byte, the lowest first, and the top bit where more follow.
void AppendGap(uint64_t gap, std::string* out) {
  for (; gap >= 0x80; gap >>= 7) out->push_back(static_cast<char>(gap | 0x80));
  out->push_back(static_cast<char>(gap));
}

absl::StatusOr<EntrySet> FromBitmap(absl::string_view bytes, int64_t size) {
  if (static_cast<int64_t>(bytes.size()) != (size + 7) / 8) {
    return absl::InvalidArgumentError(absl::StrCat("keys: bitmap has ", bytes.size(),
                                                   " bytes, want ", (size + 7) / 8, " for ", size,
                                                   " entries"));
  }
  std::vector<uint64_t> words((size + 63) / 64);
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  // Bits beyond the last entry would be entries that nobody owns.
  if (size % 64 != 0 && words.back() >> size % 64 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: bitmap has an entry beyond the last of ", size));
  }
  return EntrySet(size, std::move(words));
}

absl::StatusOr<EntrySet> FromGaps(absl::string_view bytes, int64_t size) {
  std::vector<uint64_t> words((size + 63) / 64);
  int64_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t gap = 0;
    int shift = 0;
    // Seven bytes have 49 bits, more than any model's entries; a longer gap is an attack or damage.
    while (at < bytes.size() && (bytes[at] & 0x80) != 0 && shift < 42) {
      gap |= static_cast<uint64_t>(bytes[at++] & 0x7f) << shift;
      shift += 7;
    }
    if (at == bytes.size() || (bytes[at] & 0x80) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("keys: gap at byte ", at, " has no end, want at most 7 bytes"));
    }
    gap |= static_cast<uint64_t>(bytes[at++]) << shift;
    // Comparing with what is left, not adding, keeps the sum from overflowing.
    if (gap >= static_cast<uint64_t>(size - next)) {
      return absl::InvalidArgumentError(
          absl::StrCat("keys: entry ", next + gap, " is beyond the last of ", size));
    }
    next += static_cast<int64_t>(gap);
    words[next / 64] |= uint64_t{1} << next % 64;
    ++next;
  }
  return EntrySet(size, std::move(words));
}

}  // namespace

EncodedKeys EncodeKeys(const EntrySet& set) {
  EncodedKeys keys;
  const size_t bitmap_bytes = static_cast<size_t>(KeyBytesMax(set.size()));
  // A gap takes a byte at least.
  if (static_cast<size_t>(set.count()) < bitmap_bytes) {
    keys.form = KeyForm::kGaps;
    keys.bytes.reserve(bitmap_bytes + 8);
    int64_t next = 0;
    // Gives up once the gaps have reached the bitmap's size.
    for (size_t w = 0; w < set.words().size() && keys.bytes.size() < bitmap_bytes; ++w) {
      for (uint64_t word = set.words()[w]; word != 0; word &= word - 1) {
        const int64_t place = static_cast<int64_t>(w) * 64 + __builtin_ctzll(word);
        AppendGap(static_cast<uint64_t>(place - next), &keys.bytes);
        next = place + 1;
      }
    }
    if (keys.bytes.size() < bitmap_bytes) return keys;
    keys.bytes.clear();
  }
  keys.form = KeyForm::kBitmap;
  keys.bytes.assign(reinterpret_cast<const char*>(set.words().data()), bitmap_bytes);
  return keys;
}

absl::StatusOr<EntrySet> DecodeKeys(int form, absl::string_view bytes, int64_t size) {
  if (form == static_cast<int>(KeyForm::kBitmap)) return FromBitmap(bytes, size);
  if (form == static_cast<int>(KeyForm::kGaps)) return FromGaps(bytes, size);
  return absl::InvalidArgumentError(
      absl::StrCat("keys: form is ", form, ", want 0 (bitmap) or 1 (gaps)"));
}

KeySignature SignatureOf(uint64_t layout_hash, uint64_t core, const EntrySet& keys) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  TESSERA_CHECK(state != nullptr);
  // The layout is part of it: bits mean other entries under another one.
  const uint64_t head[] = {layout_hash, core, static_cast<uint64_t>(keys.size())};
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), head, sizeof(head));
  XXH3_128bits_update(state.get(), keys.words().data(), keys.words().size() * sizeof(uint64_t));
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {hash.high64, hash.low64};
}

}  // namespace tessera

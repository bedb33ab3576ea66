// What a push or pull is of, in the words of messages.
#ifndef TESSERA_SERVER_SHARD_KEYS_WORD_H_
#define TESSERA_SERVER_SHARD_KEYS_WORD_H_

namespace tessera {

enum class KeysKind { kUnknown, kDense, kSubnet, kSparse, kLayers };

inline const char* KeysWord(KeysKind kind) {
  switch (kind) {
    case KeysKind::kDense:
      return "dense";
    case KeysKind::kSubnet:
      return "a subnet's";
    case KeysKind::kSparse:
      return "sparse";
    case KeysKind::kLayers:
      return "some layers'";
    case KeysKind::kUnknown:
      break;
  }
  return "absent or unknown";
}

// Where all entries are exchanged, or those of subnets.
inline const char* KeysWord(bool is_whole) {
  return KeysWord(is_whole ? KeysKind::kDense : KeysKind::kSubnet);
}

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_KEYS_WORD_H_

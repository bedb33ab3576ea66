// Payloads in as many pieces as a test likes, and keys of a few rows.
#ifndef TESSERA_TESTS_COMMON_CODEC_CODED_BYTES_H_
#define TESSERA_TESTS_COMMON_CODEC_CODED_BYTES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/codec/coded_keys.h"
#include "common/codec/encoder.h"
#include "common/codec/path.h"
#include "common/codec/payload.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "tests/common/codec/all_codecs.h"

namespace tessera {

inline std::vector<CodecPath> PathsHere() {
  std::vector<CodecPath> paths;
  for (const CodecPath path : {CodecPath::kScalar, CodecPath::kAvx2, CodecPath::kAvx512}) {
    if (HasCodecPath(path)) paths.push_back(path);
  }
  return paths;
}

inline CodedKeys KeysOf(const Codec& codec, const ModelShape& shape) {
  return CodedKeys(codec, SlicesOf(shape, ShardId(0), 1), shape);
}

inline std::vector<float> Normal(int64_t count, int seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The whole payload in memory of exactly its size.
inline std::vector<char> EncodeAll(const CodedKeys& keys, const std::vector<float>& values,
                                   const PayloadRandom& random = {7, 1},
                                   CodecPath path = BestCodecPath()) {
  std::vector<char> bytes(keys.bytes());
  Encoder encoder(keys, random, path);
  encoder.Encode(values.data(), values.size(), bytes.data(), bytes.size());
  return bytes;
}

// Every piece is memory of its own, so that a read beyond it shows under a sanitizer.
inline Payload Cut(const std::vector<char>& bytes, const std::vector<int64_t>& cuts) {
  Payload payload;
  int64_t begin = 0;
  const auto append = [&](int64_t end) {
    const auto piece =
        std::make_shared<std::vector<char>>(bytes.begin() + begin, bytes.begin() + end);
    payload.Append({piece->data(), end - begin}, piece);
    begin = end;
  };
  for (const int64_t cut : cuts) append(cut);
  append(static_cast<int64_t>(bytes.size()));
  return payload;
}

inline std::vector<int64_t> RandomCuts(int64_t size, int64_t longest, std::mt19937* random) {
  std::vector<int64_t> cuts;
  for (int64_t at = (*random)() % longest; at < size; at += (*random)() % longest) {
    cuts.push_back(at);
  }
  return cuts;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CODEC_CODED_BYTES_H_

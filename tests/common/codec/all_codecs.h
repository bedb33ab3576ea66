// The codecs and models that every reader and writer of coded payloads is tried on.
#ifndef TESSERA_TESTS_COMMON_CODEC_ALL_CODECS_H_
#define TESSERA_TESTS_COMMON_CODEC_ALL_CODECS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/codec/codec.h"
#include "common/layout/parameters.h"

namespace tessera {

inline Codec CodecOf(CodecKind kind, int bits = 8, int64_t bucket = 512, bool l2_norm = false) {
  Codec codec;
  codec.kind = kind;
  codec.bits = bits;
  codec.bucket = bucket;
  codec.l2_norm = l2_norm;
  return codec;
}

// Every kind whose payloads have a fixed size, and qsgd with every number of bits, and odd, small and large buckets.
inline std::vector<Codec> AllCodecs() {
  std::vector<Codec> codecs = {CodecOf(CodecKind::kF32), CodecOf(CodecKind::kBf16),
                               CodecOf(CodecKind::kF16), CodecOf(CodecKind::kInt8)};
  for (int bits = 2; bits <= 8; ++bits) codecs.push_back(CodecOf(CodecKind::kQsgd, bits));
  codecs.push_back(CodecOf(CodecKind::kQsgd, 3, 37));
  codecs.push_back(CodecOf(CodecKind::kQsgd, 8, 1));
  codecs.push_back(CodecOf(CodecKind::kQsgd, 4, 1 << 20));
  codecs.push_back(CodecOf(CodecKind::kQsgd, 8, 512, /*l2_norm=*/true));
  codecs.push_back(CodecOf(CodecKind::kQsgd, 2, 100, /*l2_norm=*/true));
  codecs.push_back(CodecOf(CodecKind::kQsgd, 5, 1700, /*l2_norm=*/true));
  return codecs;
}

// Parameters of these rows and columns.
inline ModelShape ShapeWith(const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  ModelShape shape;
  for (const auto& [rows, columns] : sizes) {
    ParameterSpec spec;
    spec.name = "p" + std::to_string(shape.parameters.size());
    spec.rows = rows;
    spec.columns = columns;
    spec.is_vector = columns == 1;
    shape.size += spec.size();
    shape.parameters.push_back(spec);
  }
  return shape;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CODEC_ALL_CODECS_H_

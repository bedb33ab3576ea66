// The codecs and models that every reader and writer of coded payloads is tried on.
#ifndef TESSERA_TESTS_COMMON_CODEC_ALL_CODECS_H_
#define TESSERA_TESTS_COMMON_CODEC_ALL_CODECS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/codec/bf16.h"
#include "common/codec/codec.h"
#include "common/codec/codecs.h"
#include "common/codec/f16.h"
#include "common/codec/f32.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "common/codec/threshold.h"
#include "common/codec/topk.h"
#include "common/layout/parameters.h"

namespace tessera {

// qsgd with every number of bits, and odd, small and large buckets.
inline std::vector<Codec> QsgdCodecs() {
  std::vector<Codec> codecs;
  for (int bits = 2; bits <= 8; ++bits) codecs.push_back(QsgdCodec(bits));
  codecs.push_back(QsgdCodec(3, 37));
  codecs.push_back(QsgdCodec(8, 1));
  codecs.push_back(QsgdCodec(4, 1 << 20));
  codecs.push_back(QsgdCodec(8, 512, /*l2_norm=*/true));
  codecs.push_back(QsgdCodec(2, 100, /*l2_norm=*/true));
  codecs.push_back(QsgdCodec(5, 1700, /*l2_norm=*/true));
  return codecs;
}

// Every codec of the table whose payloads have a fixed size. One without numbers is here by itself; of one with numbers
// the test says which (codecs_test holds that none is forgotten).
inline std::vector<Codec> AllCodecs() {
  std::vector<Codec> codecs;
  for (const CodecEntry& entry : Codecs()) {
    const Codec codec = entry.make(v1::Codec());
    if (codec->selective() == nullptr && codec->name() == codec->kind()) codecs.push_back(codec);
  }
  for (const Codec& codec : QsgdCodecs()) codecs.push_back(codec);
  return codecs;
}

// Every selective codec of the table, with a limit that follows the updates, with a fixed one, and without.
inline std::vector<Codec> SelectiveCodecs() {
  return {ThresholdCodec(),
          ThresholdCodec({0, 0.01, true}),
          ThresholdCodec({0.25, 0.002, false}),
          ThresholdCodec({0.25, 0.002, true}),
          TopkCodec(),
          TopkCodec({1}),
          TopkCodec({4096})};
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

// A shard of a model that is cut in two, and pushes of its halves.
#ifndef TESSERA_TESTS_SERVER_SHARD_CUT_SHARD_H_
#define TESSERA_TESTS_SERVER_SHARD_CUT_SHARD_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/codec/encoder.h"
#include "common/codec/threshold_payload.h"
#include "common/consistency/barrier.h"
#include "common/layout/layer_cut.h"
#include "common/rule/sgd.h"
#include "server/shard/forms/layer_parts.h"
#include "server/shard/log/shard_recorder.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {

// Two matrices in front of the cut with their biases, and one behind it.
inline ModelShape CutShape() {
  ModelShape shape;
  shape.parameters = {{"front.weight", 7, 11, false, 0, 0.4f, 0},
                      {"front.bias", 7, 1, true, 0, 0.4f, 0},
                      {"back.weight", 3, 601, false, 1, 0.1f, 0},
                      {"back.bias", 3, 1, true, 1, 0.1f, 0}};
  for (const ParameterSpec& p : shape.parameters) shape.size += p.size();
  return shape;
}

inline LayerCut MiddleOfCutShape() {
  LayerCut cut;
  cut.layer = 1;
  cut.parameter = 2;
  cut.layers = 2;
  cut.parameters = 4;
  return cut;
}

// With momentum and decay, as both halves of a cut model are trained.
inline Shard::Options CutOptions(int shard = 0, const Sharding& sharding = 1,
                                 const CodecChoice& codecs = {}) {
  Shard::Options options;
  options.shape = CutShape();
  options.shard = ShardId(shard);
  options.sharding = sharding;
  options.seed = 42;
  options.codecs = codecs;
  options.policy = MakeBarrier();
  options.rule = MakeSgd({0.1f, 0.9f, 0.01f, false});
  options.cut = MiddleOfCutShape();
  return options;
}

inline const ParameterRange kFront = MiddleOfCutShape().front();
inline const ParameterRange kBack = MiddleOfCutShape().back();
inline constexpr ParameterRange kNothing;

// `values`, of the entries of `layers` that `shard` owns, as `codec` writes them; threshold with nothing held back.
inline Payload CodedLayers(const Shard& shard, const ParameterRange& layers, const Codec& codec,
                           std::vector<float> values) {
  const ShardSlices slices = SlicesOfLayers(shard.slices(), layers);
  REQUIRE(static_cast<int64_t>(values.size()) == slices.size);
  auto bytes = std::make_shared<std::vector<char>>();
  if (slices.size > 0 && codec->selective() != nullptr) {
    ThresholdEncoder encoder(0.25f, codec->selective()->packed());
    std::vector<float> held(values.size());
    encoder.Encode(values.data(), held.data(), slices.size);
    *bytes = encoder.Finish();
  } else if (slices.size > 0) {
    const CodedKeys keys(codec, slices, shard.traits().shape);
    bytes->resize(keys.bytes());
    Encoder encoder(keys, PayloadRandom::OfPush(42, Rank(0), Exchange(1), shard.slices().shard));
    encoder.Encode(values.data(), slices.size, bytes->data(), keys.bytes());
  }
  Payload payload;
  payload.Append({bytes->data(), static_cast<int64_t>(bytes->size())}, bytes);
  return payload;
}

inline ReceivedPush LayersPush(const Shard& shard, uint64_t member, uint64_t exchange,
                               const ParameterRange& layers, const std::vector<float>& values,
                               uint64_t summed = 1, const Codec& codec = {}) {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.base = shard.counters().version;
  push.layout_hash = shard.layout_hash();
  push.examples = 4;
  push.keys = layers;
  push.summed = summed;
  push.codec = codec;
  push.payload = CodedLayers(shard, layers, codec, values);
  return push;
}

inline const LayerParts& LayerPartsOf(const ShardTraits& traits) {
  return static_cast<const LayerParts&>(*traits.keys);
}

inline void Settle(Shard* shard) {
  while (shard->Advance(absl::UnixEpoch())) {
  }
}

inline void MustTake(Shard* shard, ReceivedPush push) {
  const absl::StatusOr<PushAccepted> accepted = shard->Accept(std::move(push));
  INFO(accepted.status());
  REQUIRE(accepted.ok());
  REQUIRE_FALSE(accepted->duplicate);
  Settle(shard);
}

// Values, and behind them the rule's states.
inline std::vector<float> AllOf(Shard* shard) {
  const std::optional<ImageEvent> image = ShardRecorder::ImageOf(shard);
  REQUIRE(image.has_value());
  std::vector<char> bytes;
  for (const Payload::Piece& piece : image->values.pieces()) {
    bytes.insert(bytes.end(), piece.data, piece.data + piece.size);
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_SHARD_CUT_SHARD_H_

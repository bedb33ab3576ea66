// Payloads that are sent again bring the same bytes, however they are taken.
#include "common/codec/bf16.h"
#include "common/codec/f16.h"
#include "common/codec/f32.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "worker/rpc/update_payload.h"

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/codec/residual.h"

namespace tessera {
namespace {

std::string TakeAll(UpdatePayload* payload, int64_t room) {
  std::string bytes;
  while (payload->left() > 0) {
    for (const grpc::Slice& slice : payload->Next(room, nullptr)) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  return bytes;
}

TEST_CASE("a rewound payload is the same, and so is one taken in other pieces",
          "[rpc][update_payload]") {
  ModelShape shape;
  ParameterSpec weight;
  weight.name = "w";
  weight.rows = 31;
  weight.columns = 457;
  ParameterSpec bias;
  bias.name = "b";
  bias.rows = 31;
  bias.is_vector = true;
  shape.parameters = {weight, bias};
  shape.size = weight.size() + bias.size();
  std::vector<float> w(weight.size()), b(bias.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 113) - 50.3f;
  for (size_t i = 0; i < b.size(); ++i) b[i] = 0.01f * static_cast<float>(i);
  const std::vector<absl::Span<const float>> update = {w, b};
  const ShardSlices slices = SlicesOf(shape, ShardId(1), 2);
  const PayloadRandom random = PayloadRandom::OfPush(7, Rank(1), Exchange(9), ShardId(1));
  for (const Codec& codec : {F32Codec(), Bf16Codec(), F16Codec(), Int8Codec(), QsgdCodec(5, 200)}) {
    for (const bool feeds_back : {false, true}) {
      INFO(codec->name() << (feeds_back ? " with feedback" : ""));
      Residual residual(shape);
      const auto make = [&](UpdateRuns* runs) {
        runs->Assign(slices, update);
        if (codec == Codec()) return PlainUpdate(runs);
        CodedKeys keys(codec, slices, shape);
        if (!feeds_back) return CodedUpdate(std::move(keys), random, runs);
        residual = Residual(shape);
        return FeedbackUpdate(std::move(keys), random, runs,
                              ResidualCursor(&residual, slices, nullptr));
      };
      UpdateRuns runs;
      auto payload = make(&runs);
      const std::string whole = TakeAll(payload.get(), int64_t{1} << 30);
      CHECK(static_cast<int64_t>(whole.size()) == payload->bytes());
      CHECK(whole.size() > 1000);
      const std::vector<float> held = residual.of(0);
      payload->Rewind();
      CHECK(payload->left() == payload->bytes());
      CHECK(TakeAll(payload.get(), int64_t{1} << 30) == whole);
      // Sent again, nothing is held back twice.
      CHECK(residual.of(0) == held);
      // Cut off after a piece, and begun anew.
      payload = make(&runs);
      payload->Next(300, nullptr);
      payload->Next(256, nullptr);
      payload->Rewind();
      CHECK(TakeAll(payload.get(), 1000) == whole);
      CHECK(residual.of(0) == held);
    }
  }
}

}  // namespace
}  // namespace tessera

// What holds for every codec of the table, whatever it writes.
#include "common/codec/codecs.h"

#include <google/protobuf/descriptor.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/codec/decoder.h"
#include "common/codec/encoder.h"
#include "common/codec/selective_codec.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

std::vector<Codec> Everything() {
  std::vector<Codec> codecs = AllCodecs();
  for (const Codec& codec : SelectiveCodecs()) codecs.push_back(codec);
  return codecs;
}

TEST_CASE("every kind that a job may name has one row, by its name, and the batteries go over it",
          "[codec][table]") {
  const google::protobuf::OneofDescriptor& kinds =
      *v1::Codec::descriptor()->FindOneofByName("kind");
  REQUIRE(static_cast<int>(Codecs().size()) == kinds.field_count());
  std::set<std::string> tried;
  for (const Codec& codec : Everything()) tried.insert(codec->kind());
  for (int i = 0; i < kinds.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *kinds.field(i);
    const CodecEntry& entry = Codecs()[i];
    INFO(field.name());
    CHECK(static_cast<int>(entry.kind) == field.number());
    CHECK(entry.make(v1::Codec())->kind() == field.name());
    CHECK(tried.count(field.name()) == 1);
  }
}

TEST_CASE("a message's codec has the message's numbers", "[codec][table]") {
  CHECK(CodecOf(v1::Codec()) == Codec());
  v1::Codec message;
  message.mutable_int8();
  CHECK(CodecOf(message) == Int8Codec());
  message.mutable_qsgd()->set_bits(3);
  message.mutable_qsgd()->set_bucket(37);
  message.mutable_qsgd()->set_norm("l2");
  CHECK(CodecOf(message) == QsgdCodec(3, 37, true));
  message.mutable_threshold()->set_density(0.01);
  message.mutable_threshold()->set_packed(true);
  CHECK(CodecOf(message) == ThresholdCodec({0, 0.01, true}));
  message.mutable_threshold()->set_tau(0.5);
  CHECK(CodecOf(message) == ThresholdCodec({0.5, 0.01, true}));
  message.mutable_topk()->set_k(7);
  CHECK(CodecOf(message) == TopkCodec({7}));
}

TEST_CASE("codecs are the same exactly where their names are, and messages find them by those",
          "[codec][table]") {
  const std::vector<Codec> all = Everything();
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i]->name().substr(0, all[i]->kind().size()) == all[i]->kind());
    CHECK(*NamedCodec(all[i]->name(), all[i]) == all[i]);
    CHECK(*NamedCodec("", all[i]) == Codec());
    CHECK(*NamedCodec("f32", all[i]) == Codec());
    for (size_t k = 0; k < all.size(); ++k) {
      INFO(all[i]->name() << " and " << all[k]->name());
      CHECK((all[i] == all[k]) == (i == k));
      if (i != k && all[i] != Codec()) CHECK_FALSE(NamedCodec(all[i]->name(), all[k]).ok());
    }
  }
  CHECK(NamedCodec("f64", Int8Codec()).status().message() == "codec is \"f64\", want int8 or f32");
  CHECK(NamedCodec("int8", Codec()).status().message() == "codec is \"int8\", want f32");
}

std::vector<float> SeenOf(const CodedKeys& keys, const std::vector<float>& values) {
  const std::vector<char> bytes = EncodeAll(keys, values);
  std::vector<float> seen(values.size());
  Decoder(keys).Assign(bytes.data(), keys.bytes(), 1, seen.data(), keys.entries());
  return seen;
}

TEST_CASE("what a codec says of itself is so", "[codec][table]") {
  const ModelShape shape = ShapeWith({{13, 801}});
  const std::vector<float> values = Normal(shape.size, 1);
  for (const Codec& codec : AllCodecs()) {
    INFO(codec->name());
    const CodecTraits& traits = codec->traits();
    const CodedKeys keys = KeysOf(codec, shape);
    CHECK(SameBits(SeenOf(keys, values), values) == (traits.loss == CodecLoss::kNone));
    CHECK(traits.loss != CodecLoss::kUnsent);
    CHECK((traits.entry_bytes > 0) == IsPlain(codec));
    if (IsPlain(codec)) CHECK(keys.bytes() == traits.entry_bytes * shape.size);
    // The squares of small gradients, beside one that is not small.
    std::vector<float> small(shape.size, 1e-12f);
    small[0] = 1;
    float least = 1;
    for (const float x : SeenOf(keys, small)) least = std::min(least, std::fabs(x));
    if (traits.keeps_small) CHECK(least > 0.5e-12f);
    // One entry below the least size all goes as f32.
    if (traits.parameter_entries_min == 0) continue;
    const auto bytes = [&](int64_t n) { return KeysOf(codec, ShapeWith({{n, 1}})).bytes(); };
    CHECK(bytes(traits.parameter_entries_min - 1) == 4 * (traits.parameter_entries_min - 1));
    const CodedKeys least_coded = KeysOf(codec, ShapeWith({{traits.parameter_entries_min, 1}}));
    CHECK(least_coded.segments()[0].form != &kF32Form);
  }
}

TEST_CASE("a selective codec's payloads pass its check, fit its limit and add up with what is held",
          "[codec][table][selective]") {
  constexpr int64_t kEntries = 20000;
  for (const Codec& codec : SelectiveCodecs()) {
    INFO(codec->name());
    const SelectiveCodec& selective = *codec->selective();
    CHECK(codec->traits().loss == CodecLoss::kUnsent);
    CHECK(codec->traits().entry_bytes == 0);
    const std::unique_ptr<EntrySelector> selector = selective.NewSelector();
    std::vector<float> held(kEntries);
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> update = Normal(kEntries, step);
      std::vector<float> wanted(kEntries);
      std::vector<float> magnitudes;
      for (int64_t i = 0; i < kEntries; ++i) {
        wanted[i] = update[i] + held[i];
        magnitudes.push_back(std::fabs(wanted[i]));
      }
      if (selector->sample_size() > 0) selector->Learn(magnitudes);
      const std::unique_ptr<SelectionEncoder> encoder = selector->NewEncoder();
      encoder->Encode(update.data(), held.data(), kEntries);
      const std::vector<char> bytes = encoder->Finish();
      CHECK(static_cast<int64_t>(bytes.size()) <= selective.BytesMax(kEntries));
      const Payload payload = Cut(bytes, {3, 9});
      CHECK(selective.Check(payload, kEntries).ok());
      CHECK(selective.Check(payload, kEntries / 2).code() == absl::StatusCode::kInvalidArgument);
      // Both ways of reading see the entries that reached the limit, or whatever was sent without one.
      const std::optional<float> limit = selector->limit();
      std::vector<float> seen(kEntries, 7);
      const auto reader = selective.NewReader(payload);
      reader->Assign(kEntries / 3, 1, seen.data());
      reader->Assign(kEntries - kEntries / 3, 1, seen.data() + kEntries / 3);
      std::vector<float> taken(kEntries);
      const auto sent = selective.NewReader(payload);
      while (sent->NextPlace().has_value()) {
        int64_t place = 0;
        float x = 0;
        REQUIRE(sent->Take(kEntries, 1, 1, &place, &x) == 1);
        taken[place] = x;
      }
      for (int64_t i = 0; i < kEntries; ++i) {
        if (limit) REQUIRE((seen[i] != 0) == (std::fabs(wanted[i]) >= *limit));
        REQUIRE(seen[i] == taken[i]);
        REQUIRE(seen[i] + held[i] == Approx(wanted[i]).margin(1e-6));
      }
    }
  }
}

TEST_CASE("a selective codec's forecast is about what it sends, or says why there is none",
          "[codec][table][selective]") {
  for (const Codec& codec : SelectiveCodecs()) {
    INFO(codec->name());
    const SelectiveCodec& selective = *codec->selective();
    const PayloadForecast forecast = selective.Forecast(100000);
    const bool is_known = forecast.certainty != PayloadForecast::Certainty::kUnknown;
    CHECK(selective.sent_share().has_value() == is_known);
    CHECK(forecast.sent.empty() == is_known);
    CHECK(forecast.because.empty() == is_known);
    CHECK(forecast.advice.empty() == is_known);
    // Places and values of what is sent, and heads.
    if (is_known) CHECK(forecast.bytes < 100000 * 4 * *selective.sent_share() + 300);
    if (forecast.certainty == PayloadForecast::Certainty::kExact) {
      std::vector<float> update(100000, 1), held(100000);
      const std::unique_ptr<SelectionEncoder> encoder = selective.NewSelector()->NewEncoder();
      encoder->Encode(update.data(), held.data(), 100000);
      CHECK(forecast.bytes == static_cast<int64_t>(encoder->Finish().size()));
    }
    CHECK((forecast.certainty == PayloadForecast::Certainty::kAtMost) ==
          (is_known && selective.packed()));
  }
}

TEST_CASE("a sentence names the kinds that it is about in the order of the table",
          "[codec][table]") {
  CHECK(KindsThat([](const CodecDefinition& codec) {
          return codec.kind() == "f32" || codec.kind() == "int8" || codec.kind() == "qsgd";
        }) == "f32, int8 or qsgd");
  CHECK(KindsThat([](const CodecDefinition& codec) {
          return codec.kind() == "f32" || codec.kind() == "bf16";
        }) == "f32 or bf16");
  CHECK(KindsThat([](const CodecDefinition& codec) { return codec.kind() == "qsgd"; }) == "qsgd");
  CHECK(KindsThat([](const CodecDefinition&) { return false; }).empty());
}

}  // namespace
}  // namespace tessera

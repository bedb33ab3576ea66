// Every alternative of NamedKeys, as messages carry it.
#include "common/rpc/key_set_message.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

// One of each alternative, in their order.
std::vector<NamedKeys> OneOfEach() {
  NamedCore core;
  core.name = {3, {5, 7}};
  core.key_form = 1;
  return {AllEntries(),
          SubnetPlace{1, 2, 1, {1, 3}},
          core,
          ParameterRange{2, 4},
          RowRange{1, 5, 9},
          Fragment{3, 8},
          UnknownKeys()};
}

TEST_CASE("every key set has a word of its own, and comes back from its message",
          "[key_set_message]") {
  const std::vector<NamedKeys> all = OneOfEach();
  REQUIRE(all.size() == std::variant_size_v<NamedKeys>);
  std::set<std::string> words;
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    REQUIRE(all[i].index() == i);
    words.insert(KeysWord(all[i]));
    const v1::KeySet message = ToMessage(all[i]);
    const absl::StatusOr<NamedKeys> back = KeysOf(message);
    REQUIRE(back.ok());
    CHECK(back->index() == i);
    CHECK(ToMessage(*back).SerializeAsString() == message.SerializeAsString());
  }
  CHECK(words.size() == all.size());
}

TEST_CASE("of a core's keys that follow in the payload the message has the size",
          "[key_set_message]") {
  NamedCore core;
  core.keys = "abcde";
  const v1::KeySet message = ToMessage(core);
  CHECK(message.sparse().keys_bytes() == 5);
  const absl::StatusOr<NamedKeys> back = KeysOf(message);
  REQUIRE(back.ok());
  REQUIRE(std::get<NamedCore>(*back).keys.has_value());
  CHECK(std::get<NamedCore>(*back).keys->empty());
}

TEST_CASE("numbers that no key set allows are refused", "[key_set_message]") {
  const auto says = [](const v1::KeySet& message) {
    const absl::StatusOr<NamedKeys> keys = KeysOf(message);
    CHECK(absl::IsInvalidArgument(keys.status()));
    return std::string(keys.status().message());
  };
  v1::KeySet message;
  message.mutable_subnet()->set_site(1);
  message.mutable_subnet()->add_shares(1);
  CHECK(says(message) == "subnet: site is 1, want less than the 1 sites that have a share");
  message.mutable_subnet()->mutable_shares()->Resize(kSitesMax + 1, 1);
  CHECK(says(message) == "shares are 4097, want at most 4096");
  message.mutable_sparse()->set_signature("short");
  CHECK(says(message) == "core: signature has 5 bytes, want 16");
  message.mutable_layers()->set_parameter_begin(2);
  CHECK(says(message) == "layers are parameters 2 to 0, want a range below 1073741824");
}

TEST_CASE("an answer says why it has not what was asked for", "[key_set_message]") {
  const SubnetPlace asked{1, 2, 1, {1, 3}};
  SubnetPlace other = asked;
  other.site = 0;
  v1::ChunkHeader header;
  CHECK(SetAnswered(asked, asked, &header));
  CHECK(header.subnet().site() == 1);
  CHECK_FALSE(SetAnswered(asked, other, &header));
  CHECK(header.subnet().site() == 0);
  CHECK_FALSE(SetAnswered(asked, UnknownKeys(), &header));
  CHECK(header.whole_model());
  v1::ChunkHeader sparse;
  CHECK_FALSE(SetAnswered(NamedCore(), UnknownKeys(), &sparse));
  CHECK(sparse.need_keys());
  CHECK(SetAnswered(AllEntries(), AllEntries(), &header));
}

}  // namespace
}  // namespace tessera

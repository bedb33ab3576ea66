#include "common/codec/int8.h"
#include "worker/rpc/exchange_requests.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

ExchangeRequests Requests(const Codec& pull = Codec()) {
  v1::Caller caller;
  caller.set_member(9);
  return ExchangeRequests(caller, 5, pull);
}

Codec Int8() { return Int8Codec(); }

KeySet SubnetOf(uint64_t round) {
  KeySet keys;
  keys.subnet = SubnetPlace{1, round, 0, {1, 1}};
  return keys;
}

TEST_CASE("all messages name their caller, and pushes the layout", "[client]") {
  ExchangeRequests requests = Requests();
  CHECK(requests.push()->caller().member() == 9);
  CHECK(requests.pull()->caller().member() == 9);
  CHECK(requests.fetch()->caller().member() == 9);
  CHECK(requests.push()->layout_hash() == 5);
}

TEST_CASE("values of an exchange come in the pull's codec, and those outside of one as f32",
          "[client]") {
  ExchangeRequests requests = Requests(Int8());
  requests.AskValues(KeySet(), Exchange(7), IdleNotice{3, true});
  CHECK(requests.pull()->after_exchange() == 7);
  CHECK(requests.pull()->rest() == 3);
  CHECK(requests.pull()->rests());
  CHECK(requests.pull()->codec() == "int8");
  CHECK(requests.pull()->keys().has_dense());
  CHECK_FALSE(requests.is_outside());

  requests.AskOutside(KeySet(), Exchange(8), IdleNotice());
  CHECK(requests.pull()->after_exchange() == 8);
  CHECK(requests.pull()->rest() == 0);
  CHECK_FALSE(requests.pull()->rests());
  CHECK(requests.pull()->codec().empty());
  CHECK(requests.is_outside());
}

TEST_CASE("what was asked for before leaves nothing behind", "[client]") {
  ExchangeRequests requests = Requests(Int8());
  requests.AskRows(KeySet(), RowRange{2, 4, 6});
  CHECK(requests.is_rows());
  CHECK(requests.is_outside());
  CHECK(requests.pull()->keys().rows().parameter() == 2);
  CHECK(requests.pull()->keys().rows().row_begin() == 4);
  CHECK(requests.pull()->keys().rows().row_end() == 6);

  requests.AskValues(SubnetOf(8), Exchange(7), IdleNotice());
  REQUIRE(requests.subnet().has_value());
  CHECK(requests.subnet()->round == 8);
  CHECK(requests.fetch()->codec() == "int8");
  CHECK_FALSE(requests.is_rows());
  CHECK_FALSE(requests.is_outside());

  requests.AskValues(KeySet(), Exchange(8), IdleNotice());
  CHECK_FALSE(requests.subnet().has_value());
  CHECK_FALSE(requests.is_rows());
  CHECK_FALSE(requests.is_outside());
  CHECK(requests.pull()->codec() == "int8");
}

TEST_CASE("a push says what it is of, and a kind of its own before the method's", "[client]") {
  ExchangeRequests requests = Requests();
  OutgoingPush push;
  push.exchange = Exchange(4);
  push.examples = 30;
  push.summed = 3;
  requests.SetPush(push, KeySet(), Int8(), v1::GRADIENT);
  CHECK(requests.push()->exchange() == 4);
  CHECK(requests.push()->examples() == 30);
  CHECK(requests.push()->codec() == "int8");
  CHECK(requests.push()->kind() == v1::GRADIENT);
  CHECK(requests.push()->summed() == 0);  // Only layers are pushed as sums.

  KeySet layers;
  layers.layers = ParameterRange{0, 2};
  push.kind = static_cast<PayloadKind>(v1::VALUE);
  requests.SetPush(push, layers, Codec(), v1::GRADIENT);
  CHECK(requests.push()->codec().empty());
  CHECK(requests.push()->kind() == v1::VALUE);
  CHECK(requests.push()->summed() == 3);
  CHECK(requests.push()->keys().layers().parameter_end() == 2);

  requests.SetPush(push, SubnetOf(4), Codec(), v1::GRADIENT);
  CHECK(requests.push()->keys().subnet().round() == 4);
  CHECK(requests.push()->summed() == 0);
}

}  // namespace
}  // namespace tessera

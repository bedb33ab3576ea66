#include "common/base/philox.h"

#include <catch2/catch.hpp>
#include <set>

namespace tessera {
namespace {

TEST_CASE("philox gives the known answers of Random123", "[base][philox]") {
  using philox_internal::Rounds;
  CHECK(Rounds({0, 0, 0, 0}, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(Rounds({ones, ones, ones, ones}, ones, ones) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Rounds({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("seed, stream, a and b take the documented places in key and counter", "[base][philox]") {
  const uint64_t seed = 0x1111111122222222;
  const uint64_t a = 0x00333333'44444444;
  const uint64_t b = 0x55555555'66666666;
  CHECK(Philox(seed, Stream::kDropout, a, b) ==
        philox_internal::Rounds({0x66666666, 0x55555555, 0x44444444, 0x04333333}, 0x22222222,
                                0x11111111));
}

TEST_CASE("explorers draw from a stream of their own", "[base][philox]") {
  CHECK(Philox(7, Stream::kExplorer, 0x100000003, 0) ==
        PhiloxBlock{0x3ccc2e1e, 0x7938a773, 0xb215d605, 0x2c91d0dd});
  CHECK(Philox(7, Stream::kExplorer, 0x1000200000003, 0x12345) ==
        PhiloxBlock{0x7fa79ef0, 0xc0525dc1, 0xa8b25b1d, 0x19867810});
}

TEST_CASE("a change of seed, stream, a or b changes the block", "[base][philox]") {
  std::set<PhiloxBlock> blocks;
  blocks.insert(Philox(1, Stream::kInitialValues, 0, 0));
  blocks.insert(Philox(uint64_t{1} << 32, Stream::kInitialValues, 0, 0));
  blocks.insert(Philox(1, Stream::kDataOrder, 0, 0));
  blocks.insert(Philox(1, Stream::kInitialValues, 1, 0));
  blocks.insert(Philox(1, Stream::kInitialValues, uint64_t{1} << 32, 0));
  blocks.insert(Philox(1, Stream::kInitialValues, 0, 1));
  blocks.insert(Philox(1, Stream::kInitialValues, 0, uint64_t{1} << 32));
  CHECK(blocks.size() == 7);
}

TEST_CASE("a unit float is below one and keeps 24 bits", "[base][philox]") {
  CHECK(UnitFloat(0) == 0.0f);
  CHECK(UnitFloat(0xff) == 0.0f);
  CHECK(UnitFloat(0x100) == 0x1p-24f);
  CHECK(UnitFloat(0x80000000) == 0.5f);
  CHECK(UnitFloat(0xffffffff) == 1.0f - 0x1p-24f);
}

}  // namespace
}  // namespace tessera

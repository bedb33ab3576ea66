#include "common/rpc/striping/striping.h"

#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/windows.h"

namespace tessera {
namespace {

TEST_CASE("a call has a connection for each 8 MiB, as far as there may be", "[rpc][stripes]") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  CHECK(StripesFor(0, 8) == 1);
  CHECK(StripesFor(16 * kMiB - 1, 8) == 1);
  CHECK(StripesFor(16 * kMiB, 8) == 2);
  CHECK(StripesFor(64 * kMiB, 8) == 8);
  CHECK(StripesFor(640 * kMiB, 8) == 8);
  CHECK(StripesFor(640 * kMiB, 3) == 3);
  CHECK(StripesFor(640 * kMiB, 0) == 1);
}

TEST_CASE("a connection's name is read as it was written", "[rpc][stripes]") {
  const std::string call = NewStripedCall();
  CHECK(call.size() == 32);
  CHECK(NewStripedCall() != call);
  for (int count = 2; count <= kStripesMax; ++count) {
    for (int number = 0; number < count; ++number) {
      const auto name = ParseStripeName(ToMetadata({call, number, count}));
      REQUIRE(name.ok());
      CHECK(name->call == call);
      CHECK(name->number == number);
      CHECK(name->count == count);
    }
  }
}

TEST_CASE("metadata that name no connection are refused in words", "[rpc][stripes]") {
  const std::string call(32, 'f');
  for (const std::string& text :
       {std::string(), call, absl::StrCat(call, " 1"), absl::StrCat(call, " 2 2"),
        absl::StrCat(call, " -1 2"), absl::StrCat(call, " 0 1"), absl::StrCat(call, " 0 9"),
        absl::StrCat(call, " 1 2 "), absl::StrCat(call, "f 1 2"), absl::StrCat(call, " x 2"),
        absl::StrCat(std::string(32, 'g'), " 1 2"), absl::StrCat(call, " 1 99999999999"),
        std::string("\x01\xff\n")}) {
    INFO(text);
    const absl::Status status = ParseStripeName(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "want 32 hexadecimal digits"));
    CHECK_FALSE(absl::StrContains(status.message(), "\n"));
  }
}

}  // namespace
}  // namespace tessera

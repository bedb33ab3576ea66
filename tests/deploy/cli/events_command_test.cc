#include "deploy/cli/events_command.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("an event is one line without control characters", "[cli][events]") {
  v1::JobEvent event;
  event.set_seconds(12.34);
  event.set_kind("lost");
  event.set_who("worker 3");
  event.set_words("lost: \x1b[31mred\nline");
  CHECK(EventLine(event) ==
        "      12.3s  lost               worker 3     lost: \\x1b[31mred\\nline");
}

}  // namespace
}  // namespace tessera

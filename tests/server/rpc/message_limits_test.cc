#include "server/rpc/message_limits.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/coordinator.pb.h"

namespace tessera {
namespace {

const std::string kLongest(kTextBytesMax, 'x');

TEST_CASE("a text as long as allowed passes, and a longer one is named", "[message_limits]") {
  v1::JoinRequest request;
  request.set_description(kLongest);
  CHECK(CheckTexts(request).ok());
  request.set_description(kLongest + "x");
  CHECK(CheckTexts(request) ==
        absl::InvalidArgumentError("JoinRequest.description: is 16385 bytes, want at most 16384"));
}

TEST_CASE("texts in messages within messages count, too", "[message_limits]") {
  v1::LeaveRequest request;
  request.mutable_report()->set_backend(kLongest + "x");
  CHECK(CheckTexts(request).message() ==
        "WorkerReport.backend: is 16385 bytes, want at most 16384");
  v1::JoinReply reply;
  reply.add_waiting_for("short");
  reply.add_waiting_for(kLongest + "x");
  CHECK_FALSE(CheckTexts(reply).ok());
}

TEST_CASE("values may be as long as a message", "[message_limits]") {
  v1::EvaluateRequest request;
  request.set_constants(kLongest + kLongest);
  CHECK(CheckTexts(request).ok());
}

}  // namespace
}  // namespace tessera

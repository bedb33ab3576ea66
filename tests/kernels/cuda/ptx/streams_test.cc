#include "tests/kernels/cuda/ptx/streams.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace tessera::ptx {
namespace {

struct Streams {
  Stream compute, copy;
  Event event, other;
  std::string log;

  Work Say(const std::string& what) {
    return [this, what] { log += what; };
  }
};

using Recorded = std::shared_ptr<std::vector<Work>>;

void Replay(const Recorded& recorded) {
  for (const Work& work : *recorded) work();
}

TEST_CASE("what is queued is done when somebody waits, in its stream's order") {
  Streams s;
  s.compute.Queue(s.Say("a"));
  s.compute.Record(&s.event);
  s.compute.Queue(s.Say("b"));
  REQUIRE(s.copy.Wait(s.event) == cudaSuccess);
  s.copy.Queue(s.Say("c"));
  CHECK(s.log == "");
  CHECK(Synchronize(s.other) == cudaSuccess);
  CHECK(s.log == "");
  REQUIRE(s.copy.Synchronize() == cudaSuccess);
  CHECK(s.log == "ac");
  CHECK(Synchronize(s.event) == cudaSuccess);
  CHECK(s.log == "ac");
  REQUIRE(s.compute.Synchronize() == cudaSuccess);
  CHECK(s.log == "acb");
}

TEST_CASE("a capture takes what is queued on its stream and on those that wait for it") {
  Streams s;
  REQUIRE(s.compute.BeginCapture() == cudaSuccess);
  s.compute.Queue(s.Say("a"));
  s.compute.Record(&s.event);
  REQUIRE(s.copy.Wait(s.event) == cudaSuccess);
  s.copy.Queue(s.Say("b"));
  s.copy.Record(&s.other);
  REQUIRE(s.compute.Wait(s.other) == cudaSuccess);
  Recorded recorded;
  REQUIRE(s.compute.EndCapture(&recorded) == cudaSuccess);
  CHECK(s.log == "");
  Replay(recorded);
  Replay(recorded);
  CHECK(s.log == "abab");
  // Both are streams like others again.
  s.copy.Queue(s.Say("c"));
  CHECK(s.copy.Synchronize() == cudaSuccess);
  CHECK(s.log == "ababc");
}

TEST_CASE("captures that CUDA would refuse are refused") {
  Streams s;
  Recorded recorded;
  s.compute.Record(&s.other);
  REQUIRE(s.compute.BeginCapture() == cudaSuccess);
  CHECK(s.compute.BeginCapture() == cudaErrorIllegalState);
  CHECK(s.compute.Synchronize() == cudaErrorStreamCaptureUnsupported);
  // What was recorded before, or never, is outside.
  CHECK(s.compute.Wait(s.other) == cudaErrorStreamCaptureIsolation);
  CHECK(s.compute.Wait(Event()) == cudaErrorStreamCaptureIsolation);
  s.compute.Record(&s.event);
  CHECK(Synchronize(s.event) == cudaErrorCapturedEvent);
  REQUIRE(s.copy.Wait(s.event) == cudaSuccess);
  CHECK(s.copy.EndCapture(&recorded) == cudaErrorStreamCaptureUnmatched);
  s.copy.Queue(s.Say("b"));
  // Nobody waits for the copy.
  CHECK(s.compute.EndCapture(&recorded) == cudaErrorStreamCaptureUnjoined);
  CHECK(recorded == nullptr);
  // An event of a capture stands for nothing when that is over.
  CHECK(s.copy.Wait(s.event) == cudaErrorCapturedEvent);
  CHECK(Synchronize(s.event) == cudaErrorCapturedEvent);
  CHECK(s.copy.EndCapture(&recorded) == cudaErrorStreamCaptureUnmatched);
}

TEST_CASE("a wait that comes before the other stream's last work does not join it") {
  Streams s;
  Recorded recorded;
  REQUIRE(s.compute.BeginCapture() == cudaSuccess);
  s.compute.Record(&s.event);
  REQUIRE(s.copy.Wait(s.event) == cudaSuccess);
  s.copy.Queue(s.Say("a"));
  s.copy.Record(&s.other);
  s.copy.Queue(s.Say("b"));
  REQUIRE(s.compute.Wait(s.other) == cudaSuccess);
  CHECK(s.compute.EndCapture(&recorded) == cudaErrorStreamCaptureUnjoined);
}

TEST_CASE("two captures do not wait for each other") {
  Streams s;
  REQUIRE(s.compute.BeginCapture() == cudaSuccess);
  REQUIRE(s.copy.BeginCapture() == cudaSuccess);
  s.compute.Record(&s.event);
  CHECK(s.copy.Wait(s.event) == cudaErrorStreamCaptureMerge);
}

}  // namespace
}  // namespace tessera::ptx

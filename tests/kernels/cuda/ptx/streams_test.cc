#include "tests/kernels/cuda/ptx/streams.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/memory.h"

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

using Recorded = std::shared_ptr<Recording>;

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
  s.compute.Launch(recorded);
  s.compute.Launch(recorded);
  REQUIRE(s.compute.Synchronize() == cudaSuccess);
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

// What is wrong with work that touches the same words.
struct Touches {
  DeviceMemory memory{1 << 20};
  std::string wrong;

  Work Of(bool writes, int64_t offset = 0) {
    return [this, writes, offset] {
      const char* const what = memory.Follow(offset, 64, writes);
      if (what != nullptr) wrong = what;
    };
  }
};

TEST_CASE("streams that touch the same memory must wait for each other") {
  const bool writes = GENERATE(false, true), waits = GENERATE(false, true),
             by_host = GENERATE(false, true);
  CAPTURE(writes, waits, by_host);
  Streams s;
  Touches t;
  s.compute.Queue(t.Of(true));
  s.compute.Record(&s.event);
  if (waits) REQUIRE((by_host ? Synchronize(s.event) : s.copy.Wait(s.event)) == cudaSuccess);
  s.copy.Queue(t.Of(writes));
  REQUIRE(s.compute.Synchronize() == cudaSuccess);
  REQUIRE(s.copy.Synchronize() == cudaSuccess);
  CHECK((t.wrong == "") == waits);
}

TEST_CASE("what another stream reads is not written before it has") {
  const bool waits = GENERATE(false, true);
  Streams s;
  Touches t;
  s.copy.Queue(t.Of(false));
  s.copy.Record(&s.event);
  s.compute.Queue(t.Of(false));
  s.compute.Queue(t.Of(true, 128));
  if (waits) REQUIRE(s.compute.Wait(s.event) == cudaSuccess);
  s.compute.Queue(t.Of(true));
  REQUIRE(s.copy.Synchronize() == cudaSuccess);
  REQUIRE(s.compute.Synchronize() == cudaSuccess);
  CHECK((t.wrong == "") == waits);
}

TEST_CASE("a graph's branches are ordered by what was captured, and its launches by their stream") {
  const bool waits = GENERATE(false, true);
  Streams s;
  Touches t;
  REQUIRE(s.compute.BeginCapture() == cudaSuccess);
  s.compute.Queue(t.Of(true));
  s.compute.Record(&s.event);
  REQUIRE(s.copy.Wait(s.event) == cudaSuccess);
  s.copy.Queue(t.Of(false));
  s.copy.Record(&s.other);
  if (waits) REQUIRE(s.compute.Wait(s.other) == cudaSuccess);
  s.compute.Queue(t.Of(true));
  REQUIRE(s.compute.Wait(s.other) == cudaSuccess);
  Recorded recorded;
  REQUIRE(s.compute.EndCapture(&recorded) == cudaSuccess);
  for (int launch = 0; launch < 3; ++launch) {
    s.compute.Launch(recorded);
    s.compute.Queue(t.Of(true));
  }
  REQUIRE(s.compute.Synchronize() == cudaSuccess);
  CHECK((t.wrong == "") == waits);
  // The real copy stream was no part of it.
  t.wrong = "";
  s.compute.Launch(recorded);
  s.copy.Queue(t.Of(false));
  REQUIRE(s.compute.Synchronize() == cudaSuccess);
  REQUIRE(s.copy.Synchronize() == cudaSuccess);
  CHECK(t.wrong == "was written by another stream, which it does not wait for");
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

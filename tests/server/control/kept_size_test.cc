// What others say may be large, and is not kept: the coordinator's state and status have what they are made of, and no
// more.
#include <catch2/catch.hpp>
#include <string>

#include "common/metrics/staleness.h"
#include "common/base/limits.h"
#include "server/control/job_facts.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

constexpr size_t kMuch = size_t{1} << 20;

// As a field that this build does not know.
void AddUnknown(google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(
      9999, std::string(kMuch, 'x'));
}

// Less than any of what was said.
void IsSmall(const ControlFixture& control) {
  CHECK(control.coordinator->Save().ByteSizeLong() < kMuch / 2);
  CHECK(control.coordinator->Status(control.now).ByteSizeLong() < kMuch / 2);
}

TEST_CASE("fields that this build does not know are not kept", "[kept_size]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  REQUIRE(control.Join(1)->admitted());
  SECTION("of a renewal") {
    v1::RenewRequest request;
    request.set_member(1);
    request.mutable_progress()->set_step(3);
    AddUnknown(request.mutable_progress());
    AddUnknown(request.mutable_progress()->mutable_traffic());
    AddUnknown(request.mutable_progress()->mutable_phases());
    REQUIRE(control.Renew(request).ok());
    CHECK(control.coordinator->membership().members().Find(MemberId(1))->progress.step() == 3);
  }
  SECTION("of a report") {
    v1::LeaveRequest request;
    request.set_member(1);
    request.mutable_report()->set_steps(3);
    AddUnknown(request.mutable_report());
    REQUIRE(control.Leave(request).ok());
    CHECK(control.coordinator->Status(control.now).worker_reports(0).steps() == 3);
  }
  SECTION("of one that comes to an evaluation") {
    v1::EvaluateRequest request;
    request.set_member(1);
    request.set_constants(std::string(kMuch, 'x'));
    request.mutable_scores();
    AddUnknown(&request);
    AddUnknown(request.mutable_scores());
    AddUnknown(request.mutable_progress());
    REQUIRE(control.coordinator->Evaluate(request, control.now).ok());
  }
  SECTION("of a server's counters") {
    v1::ShardMessage message;
    message.mutable_counters()->set_pushes(3);
    AddUnknown(message.mutable_counters());
    control.coordinator->OnShardMessage(ShardId(0), message, control.now);
    CHECK(control.coordinator->Status(control.now).servers(0).counters().pushes() == 3);
  }
  IsSmall(control);
}

TEST_CASE("what an evaluation computes with is not kept when it is over", "[kept_size]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  REQUIRE(control.Join(1)->admitted());
  v1::EvaluateRequest request;
  request.set_member(1);
  request.mutable_progress()->set_step(3);
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    request.set_stage(stage);
    request.set_constants(stage == v1::CALIBRATE ? std::string(kMuch, 'x') : "");
    request.mutable_scores()->set_rows(stage == v1::SCORE ? 10 : 0);
    REQUIRE(control.coordinator->Evaluate(request, control.now).ok());
    const auto answers = control.coordinator->TakeReplies();
    REQUIRE(answers.size() == 1);
    REQUIRE(answers[0].reply.ok());
    request.set_attempt(answers[0].reply->attempt());
    request.set_evaluation(answers[0].reply->evaluation());
    if (stage == v1::CALIBRATE) CHECK(control.coordinator->Save().ByteSizeLong() > kMuch);
  }
  CHECK(control.coordinator->Status(control.now).history_size() == 1);
  IsSmall(control);
}

TEST_CASE("texts of a worker are cut, between characters", "[kept_size]") {
  ControlFixture control(ControlFixture::Facts(1, 2));
  control.Start(2);
  v1::LeaveRequest request;
  request.set_member(1);
  request.set_error(std::string(1023, 'e') + "\xc3\xa9" + std::string(9000, 'e'));
  request.mutable_report()->set_backend(std::string(300, 'b'));
  request.mutable_report()->set_cpu(std::string(255, 'c') + "\xc3\xa9");
  request.mutable_report()->set_gpu("a GPU");
  request.mutable_report()->set_examples(~uint64_t{0});
  REQUIRE(control.Leave(request).ok());
  const MemberRecord& record = *control.coordinator->membership().members().Find(MemberId(1));
  CHECK(record.ended == std::string(1023, 'e'));
  CHECK(record.report->backend() == std::string(256, 'b'));
  CHECK(record.report->cpu() == std::string(255, 'c'));
  CHECK(record.report->gpu() == "a GPU");
  CHECK(record.report->examples() == kSavedCountEnd - 1);
}

TEST_CASE("of what a server counts no more is kept than there can be", "[kept_size]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  v1::ShardMessage message;
  for (size_t i = 0; i < kMuch / 4; ++i) {
    message.mutable_counters()->add_staleness_histogram(1);
    message.mutable_counters()->add_waits_for_ranks(static_cast<uint32_t>(i % 7));
  }
  control.coordinator->OnShardMessage(ShardId(0), message, control.now);
  const v1::ServerCounters counters =
      control.coordinator->Status(control.now).servers(0).counters();
  CHECK(counters.staleness_histogram_size() == static_cast<int>(kStalenessEntries));
  CHECK(counters.waits_for_ranks_size() == static_cast<int>(kRankEnd));
}

}  // namespace
}  // namespace tessera

#include "server/page/status_page.h"

#include <limits>
#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/page/curve.h"
#include "server/page/html.h"
#include "tests/server/monitor/whole_status.h"

namespace tessera {
namespace {

TEST_CASE("what others have named cannot become part of the page", "[page][security]") {
  const std::string bad = "<img src=x onerror=alert(1)>\"'\n\x1b";
  v1::JobStatus status;
  status.set_job(bad);
  status.set_state(bad);
  status.add_waiting_for(bad);
  status.set_failure(bad);
  status.set_method_description(bad);
  v1::MemberStatus& member = *status.add_members();
  member.set_state(bad);
  member.set_description(bad);
  status.add_servers()->set_address(bad);
  status.mutable_checkpoint()->set_failure(bad);
  v1::JobEvent event;
  event.set_kind(bad);
  event.set_who(bad);
  event.set_words(bad);
  const std::string content = PageContent(status, {}, {event});
  CHECK_FALSE(absl::StrContains(content, "<img"));
  CHECK_FALSE(absl::StrContains(content, "\n"));
  CHECK_FALSE(absl::StrContains(content, "\x1b"));
  CHECK_FALSE(absl::StrContains(content, "x onerror=alert(1)>\""));
  CHECK(absl::StrContains(content, "&lt;img src=x onerror=alert(1)&gt;&quot;&#39;"));
}

TEST_CASE("the content of a job of any size is bounded", "[page]") {
  v1::JobStatus status;
  const std::string name(5000, '<');
  status.set_job(name);
  status.set_state("training");
  for (int i = 0; i < 3000; ++i) {
    v1::MemberStatus& member = *status.add_members();
    member.set_member(i);
    member.set_rank(i);
    member.set_state("training");
    member.set_description(name);
    member.mutable_progress()->set_step(std::numeric_limits<uint64_t>::max());
    member.mutable_progress()->mutable_phases()->set_compute_seconds(1);
    v1::HistoryEntry& entry = *status.add_history();
    entry.set_step(i);
    entry.set_test_loss(i % 7);
    entry.set_train_loss(i % 5);
    entry.set_test_accuracy(0.1 * (i % 9));
    status.add_waiting_for(name);
  }
  for (int i = 0; i < 256; ++i) status.add_servers()->set_address(name);
  std::vector<v1::JobEvent> events(1000);
  for (v1::JobEvent& event : events) event.set_words(name);
  const std::string content = PageContent(status, std::vector<RateSample>(kRateSamplesMax), events);
  CHECK(content.size() < kPageContentMax);
  CHECK(absl::StrContains(content, "2936 more are not shown"));
}

TEST_CASE("the page says what a job does and for whom it waits", "[page]") {
  v1::JobStatus status = WholeStatus();
  const std::string content = PageContent(status, {}, {});
  for (const std::string& name : status.waiting_for()) {
    CHECK(absl::StrContains(content, absl::StrCat("<b>", Escaped(name), "</b>")));
  }
  for (const char* title : {"Workers", "Servers", "Checkpoints"}) {
    CHECK(absl::StrContains(content, absl::StrCat("<h2>", title, "</h2>")));
  }
  status.clear_waiting_for();
  CHECK(absl::StrContains(PageContent(status, {}, {}), "It waits for nobody."));
  status.set_state("done");
  status.set_outcome("failed");
  CHECK(absl::StrContains(PageContent(status, {}, {}), "The job has failed."));
}

TEST_CASE("shares of a worker's time are told as a bar and in words", "[page]") {
  v1::JobStatus status;
  status.set_job("j");
  v1::MemberStatus& member = *status.add_members();
  member.set_state("training");
  v1::Phases& phases = *member.mutable_progress()->mutable_phases();
  phases.set_compute_seconds(6);
  phases.set_pull_seconds(1);
  phases.set_push_seconds(1);
  phases.set_wait_seconds(2);
  CHECK(
      absl::StrContains(PageContent(status, {}, {}), "compute 60%, pull 10%, push 10%, wait 20%"));
}

TEST_CASE("workers that are gone stand behind those that take part", "[page]") {
  v1::JobStatus status;
  for (const char* state : {"lost", "training"}) {
    v1::MemberStatus& member = *status.add_members();
    member.set_state(state);
    member.set_description(absl::StrCat("host of ", state));
  }
  const std::string content = PageContent(status, {}, {});
  CHECK(content.find("host of training") < content.find("host of lost"));
}

TEST_CASE("a curve leaves out what is not finite, and is drawn of one point", "[page]") {
  Curve curve{"loss", {{"test", {}}}, false, Decimal, Short};
  CHECK(CurveHtml(curve).empty());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  curve.lines[0].points = {{1, nan}, {nan, 1}};
  CHECK(CurveHtml(curve).empty());
  curve.lines[0].points.push_back({2, 0.5});
  CHECK(absl::StrContains(CurveHtml(curve), "<b>0.5000</b>"));
  curve.lines[0].points.push_back({3, std::numeric_limits<double>::infinity()});
  CHECK_FALSE(absl::StrContains(CurveHtml(curve), "nan"));
  CHECK_FALSE(absl::StrContains(CurveHtml(curve), "inf"));
}

TEST_CASE("samples of a long job become coarser and stay few", "[page]") {
  RateSamples samples;
  v1::JobStatus status;
  for (int second = 0; second < 100000; ++second) {
    status.set_wall_seconds(second);
    status.set_examples_per_second(100);
    status.mutable_unreported()->set_pull_wire_bytes(1000 * second);
    samples.Add(status);
  }
  REQUIRE(samples.samples().size() >= kRateSamplesMax / 2 - 1);
  CHECK(samples.samples().size() < kRateSamplesMax);
  for (const RateSample& sample : samples.samples()) {
    CHECK(sample.bytes_per_second == Approx(1000));
    CHECK(sample.examples_per_second == Approx(100));
  }
  // The job goes back to a checkpoint.
  status.set_wall_seconds(200000);
  status.mutable_unreported()->set_pull_wire_bytes(0);
  samples.Add(status);
  CHECK(samples.samples().back().bytes_per_second == 0);
}

TEST_CASE("numbers are short", "[page]") {
  CHECK(Grouped(1234567) == "1,234,567");
  CHECK(Grouped(999) == "999");
  CHECK(Short(1234567) == "1.23M");
  CHECK(Short(999.9) == "1k");
  CHECK(ShortBytes(1536) == "1.5 KiB");
  CHECK(ShortSeconds(12.34) == "12.3 s");
  CHECK(ShortSeconds(3725) == "1 h 2 m");
  CHECK(Decimal(std::numeric_limits<double>::quiet_NaN()) == kNotKnown);
}

}  // namespace
}  // namespace tessera

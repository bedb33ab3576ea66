#include "deploy/cli/status_view.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

v1::JobStatus Busy() {
  v1::JobStatus status;
  status.set_job("a job whose name is rather long, and then some more of it");
  status.set_method("data_parallel");
  status.set_state("training");
  status.set_method_description("every worker waits for all others after each minibatch, always");
  status.add_waiting_for("worker 3");
  status.add_waiting_for("worker 14");
  status.set_step(123456789);
  status.set_steps_planned(223456789);
  status.set_train_seconds(123456.7);
  status.set_examples_per_second(1.5e12);
  status.set_members_lost(1);
  for (int i = 0; i < 12; ++i) {
    v1::MemberStatus& member = *status.add_members();
    member.set_rank(i);
    member.set_state("training");
    member.set_description("a-machine.example.org:123456\x1b[31m\nred");
    member.mutable_progress()->set_step(1e18);
    member.mutable_progress()->set_train_loss(i == 0 ? std::nan("") : 1.0);
    v1::ServerStatus& server = *status.add_servers();
    server.set_rank(i);
    server.set_address("another-machine.example.org:7000");
    server.mutable_counters()->set_parameter_bytes(uint64_t{1} << 50);
    status.add_history()->set_test_accuracy(0.5);
  }
  return status;
}

TEST_CASE("no line is wider than the terminal, whatever the width", "[cli][status]") {
  for (int width : {0, 24, 40, 79, 80, 132, 400}) {
    const std::string text = StatusText(Busy(), width);
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      INFO(width << ": " << std::string(line));
      CHECK(static_cast<int>(line.size()) <= std::max(width, kViewWidthMin));
      for (char c : line) CHECK(static_cast<unsigned char>(c) >= 32);
    }
  }
}

TEST_CASE("a narrow terminal keeps what matters most", "[cli][status]") {
  const std::string text = StatusText(Busy(), 40);
  CHECK(text.find("waits for worker 3, worker 14") != std::string::npos);
  CHECK(text.find("worker") != std::string::npos);
  CHECK(text.find("accuracy") != std::string::npos);
  CHECK(text.find("address") == std::string::npos);
  CHECK(StatusText(Busy(), 200).find("address") != std::string::npos);
}

TEST_CASE("an empty status is text too", "[cli][status]") {
  CHECK(!StatusText(v1::JobStatus(), 80).empty());
  v1::JobStatus failed;
  failed.set_failure("server 1 is gone");
  CHECK(StatusText(failed, 80).find("failed: server 1 is gone") != std::string::npos);
}

TEST_CASE("the JSON form is one line with the names of the contract", "[cli][status]") {
  const std::string json = StatusJson(Busy());
  CHECK(json.find('\n') == std::string::npos);
  CHECK(json.find("\"train_seconds\":123456.7") != std::string::npos);
  CHECK(json.find("\"partial_pushes\":") != std::string::npos);
}

TEST_CASE("a redraw goes back as far as was drawn and erases the rest", "[cli][status]") {
  CHECK(Redraw("a\nb\n", 0) == "a\x1b[K\nb\x1b[K\n\x1b[J");
  CHECK(Redraw("a\n", 3) == "\x1b[3A\ra\x1b[K\n\x1b[J");
}

}  // namespace
}  // namespace tessera

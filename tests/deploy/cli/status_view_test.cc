#include "deploy/cli/status_view.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <catch2/catch.hpp>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/metrics/process_memory.h"
#include "server/control/status_json.h"
#include "tests/server/monitor/whole_status.h"

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
  status.set_parked_pulls(uint64_t{1} << 60);
  status.set_resting(uint64_t{1} << 60);
  status.set_parameter_examples(1e18);
  status.set_rate_factor(1.0 / 3e12);
  for (int i = 0; i < 12; ++i) {
    v1::MemberStatus& member = *status.add_members();
    member.set_rank(i);
    member.set_state("training");
    member.set_description("a-machine.example.org:123456\x1b[31m\nred");
    member.mutable_progress()->set_step(1e18);
    member.mutable_progress()->set_train_loss(i == 0 ? std::nan("") : 1.0);
    member.mutable_progress()->set_steps_per_second(1e9);
    member.set_step_budget(1000000);
    v1::ServerStatus& server = *status.add_servers();
    server.set_rank(i);
    server.set_address("another-machine.example.org:7000");
    server.mutable_counters()->set_parameter_bytes(uint64_t{1} << 50);
    for (int k = 0; k < 65; ++k) server.mutable_counters()->add_staleness_histogram(1e15 * k);
    server.mutable_counters()->set_staleness_max(1e18);
    status.add_history()->set_test_accuracy(0.5);
  }
  return status;
}

TEST_CASE("counts of the table of status fields are told while they are not 0", "[cli][status]") {
  v1::JobStatus status;
  status.set_residuals_lost(0);
  const std::string before = StatusText(status, 80);
  for (const char* const name : {"refused pushes", "residuals lost", "pull", "rest"}) {
    INFO(name);
    CHECK(before.find(name) == std::string::npos);
  }
  status.set_refused_pushes(3);
  status.set_residuals_lost(1);
  status.set_parked_pulls(2);
  status.set_resting(1);
  const std::string text = StatusText(status, 80);
  CHECK(absl::StrContains(text, "\n2 pulls wait, 1 worker rests\n"));
  CHECK(absl::StrContains(text, "\nrefused pushes 3\nresiduals lost 1\n"));
}

TEST_CASE("it says which shards have a standby, and what takeovers took", "[cli][status]") {
  v1::JobStatus status;
  CHECK(StatusText(status, 80).find("standbys") == std::string::npos);
  for (int shard = 0; shard < 2; ++shard) {
    v1::ShardOwner& owner = *status.add_owners();
    owner.set_shard(shard);
    owner.set_in_sync(shard == 1);
  }
  CHECK(StatusText(status, 80).find("standbys of 1 of 2 shards, none of shard 0\n") !=
        std::string::npos);
  status.set_takeovers(2);
  status.add_takeover_seconds(9);
  status.add_takeover_seconds(0.25);
  const std::string text = StatusText(status, 80);
  INFO(text);
  CHECK(text.find("none of shard 0; 2 takeovers, the last in 0.") != std::string::npos);
}

TEST_CASE("what is not known yet is shown as such, not as 0", "[cli][status]") {
  v1::JobStatus status;
  status.set_wall_seconds(1);
  v1::MemberStatus& member = *status.add_members();
  member.set_state("training");
  status.add_servers();  // It has not come.
  const std::string text = StatusText(status, 100);
  INFO(text);
  for (const char* zero : {"0.0000", "0.00", "0 examples", "0B", "0 B"}) {
    INFO(zero);
    CHECK(text.find(zero) == std::string::npos);
  }
  CHECK(text.find(", - examples/s\n") != std::string::npos);
  // What is known may be 0.
  member.mutable_progress()->set_train_loss(0);
  member.mutable_progress()->set_examples(1);
  v1::ServerStatus& server = *status.mutable_servers(0);
  server.set_address("here:7000");
  server.mutable_counters()->set_pushes(1);
  const std::string known = StatusText(status, 100);
  INFO(known);
  CHECK(known.find("0.0000") != std::string::npos);
  CHECK(known.find("0.00 ") != std::string::npos);
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

TEST_CASE("evaluations have the accuracy at 5 and 10 predictions, where it is told",
          "[cli][status]") {
  v1::JobStatus status = Busy();
  CHECK(StatusText(status, 200).find("top-") == std::string::npos);
  v1::HistoryEntry& last = *status.mutable_history()->rbegin();
  for (const double share : {0.5, 0.625, 0.75}) last.add_top_k_accuracy(share);
  CHECK(StatusText(status, 200).find("accuracy   top-5\n") != std::string::npos);
  CHECK(StatusText(status, 200).find("0.5000  0.7500\n") != std::string::npos);
  CHECK(StatusText(status, 40).find("top-5") == std::string::npos);
  last.add_top_k_accuracy(0.875);
  CHECK(StatusText(status, 200).find("accuracy   top-5  top-10\n") != std::string::npos);
  CHECK(StatusText(status, 200).find("0.5000  0.7500  0.8750\n") != std::string::npos);
}

TEST_CASE("a narrow terminal keeps what matters most", "[cli][status]") {
  const std::string text = StatusText(Busy(), 40);
  CHECK(text.find("waits for worker 3, worker 14") != std::string::npos);
  CHECK(text.find("worker") != std::string::npos);
  CHECK(text.find("accuracy") != std::string::npos);
  CHECK(text.find("address") == std::string::npos);
  CHECK(StatusText(Busy(), 200).find("address") != std::string::npos);
}

// Two servers, two workers, a method that waits for nobody.
v1::JobStatus Free() {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_method("diloco");
  status.set_state("training");
  status.set_free_running(true);
  status.set_parameter_examples(12345);
  for (int i = 0; i < 2; ++i) {
    v1::MemberStatus& member = *status.add_members();
    member.set_rank(i);
    member.set_state("training");
    member.mutable_progress()->set_step(400);
    v1::ServerCounters& counters = *status.add_servers()->mutable_counters();
    for (uint64_t count : {30, 60, 10}) counters.add_staleness_histogram(count);
    counters.set_staleness_sum(80);
    counters.set_staleness_max(2);
  }
  return status;
}

bool Says(const v1::JobStatus& status, int width, absl::string_view what) {
  return StatusText(status, width).find(std::string(what)) != std::string::npos;
}

TEST_CASE("staleness is one line in a wide terminal and two in a narrow one", "[cli][status]") {
  CHECK(
      Says(Free(), 80, "\nstaleness mean 0.80, max 2: 0 ##### 30%  1 ########## 60%  2 ## 10%\n"));
  CHECK(Says(Free(), 40, "\nstaleness mean 0.80, max 2\n  0 ### 30%  1 ###### 60%  2 # 10%\n"));
}

TEST_CASE("staleness is not shown where all go in step, unless somebody was late after all",
          "[cli][status]") {
  v1::JobStatus status = Free();
  status.clear_free_running();
  CHECK(Says(status, 80, "staleness"));
  for (v1::ServerStatus& server : *status.mutable_servers()) {
    server.mutable_counters()->clear_staleness_histogram();
    server.mutable_counters()->add_staleness_histogram(100);
    server.mutable_counters()->clear_staleness_sum();
    server.mutable_counters()->clear_staleness_max();
  }
  CHECK(!Says(status, 80, "staleness"));
  status.set_free_running(true);
  CHECK(Says(status, 80, "staleness mean 0.00, max 0: 0 ########## 100%"));
}

TEST_CASE("speed and step budget are columns only where steps are dealt out", "[cli][status]") {
  CHECK(!Says(Free(), 200, "budget"));
  v1::JobStatus status = Free();
  status.mutable_members(1)->set_step_budget(17);
  status.mutable_members(1)->mutable_progress()->set_steps_per_second(321);
  // The budget is worth more than the rate in a narrow terminal.
  for (int width : {40, 80}) CHECK(Says(status, width, "budget"));
  CHECK(Says(status, 40, " 17\n"));
  CHECK(!Says(status, 40, "examples/s  "));
  CHECK(Says(status, 80, " 321 "));
  // The other's is not known yet.
  CHECK(Says(status, 80, " - "));
}

TEST_CASE("speed and part are columns only where parts go by speed", "[cli][status]") {
  CHECK(!Says(Free(), 200, "part"));
  v1::JobStatus status = Free();
  status.mutable_members(1)->set_part(0.1234);
  status.mutable_members(1)->mutable_progress()->set_steps_per_second(321);
  for (int width : {40, 80}) CHECK(Says(status, width, "part"));
  CHECK(Says(status, 40, " 12.3%\n"));
  CHECK(Says(status, 80, " 321 "));
  // The other has none.
  CHECK(Says(status, 80, " - "));
}

TEST_CASE("speed and rows are columns only where minibatches go by speed", "[cli][status]") {
  CHECK(!Says(Free(), 200, "rows"));
  v1::JobStatus status = Free();
  status.mutable_members(1)->mutable_progress()->set_batch_rows(41);
  status.mutable_members(1)->mutable_progress()->set_steps_per_second(321);
  for (int width : {40, 80}) CHECK(Says(status, width, "rows"));
  CHECK(Says(status, 40, " 41\n"));
  CHECK(Says(status, 80, " 321 "));
  // The other is given none yet.
  CHECK(Says(status, 80, " - "));
}

TEST_CASE("pulls that wait, workers that rest and the rate's factor are told", "[cli][status]") {
  CHECK(!Says(Free(), 80, " wait"));
  CHECK(!Says(Free(), 80, " rest"));
  CHECK(Says(Free(), 40, "\nlearned from 12.3k examples\n"));
  v1::JobStatus status = Free();
  status.set_parked_pulls(1);
  CHECK(Says(status, 40, "\n1 pull waits\n"));
  status.set_parked_pulls(2);
  status.set_resting(1);
  status.set_rate_factor(0.25);
  CHECK(Says(status, 40, "\n2 pulls wait, 1 worker rests\n"));
  CHECK(Says(status, 80, "\nlearned from 12.3k examples, learning rate x 0.25\n"));
  CHECK(StatusJson(status).find("\"rate_factor\":0.25") != std::string::npos);
}

TEST_CASE("an empty status is text too", "[cli][status]") {
  CHECK(!StatusText(v1::JobStatus(), 80).empty());
  v1::JobStatus failed;
  failed.set_failure("server 1 is gone");
  CHECK(StatusText(failed, 80).find("failed: server 1 is gone") != std::string::npos);
  failed.set_failure(
      "worker 0: training rows are 1347, want at least 3 workers x 600; lower train.batch_size");
  failed.mutable_checkpoint()->set_failure(
      "\"/mnt/checkpoints\": no space is left on the device, and room is wanted");
  for (int width : {40, 80}) {
    CHECK(absl::StrContains(StatusText(failed, width), "train.batch_size\n"));
    CHECK(absl::StrContains(StatusText(failed, width), " wanted\n"));
  }
}

TEST_CASE("a status fits the terminal's height, and says what is left out", "[cli][status]") {
  for (int width : {40, 80, 200}) {
    const std::string whole = StatusText(Busy(), width);
    const auto lines = static_cast<int>(std::count(whole.begin(), whole.end(), '\n'));
    for (int height = 0; height <= lines + 1; ++height) {
      INFO(width << " x " << height);
      const std::string text = StatusText(Busy(), width, height);
      CHECK(std::count(text.begin(), text.end(), '\n') <= std::max(height, kViewHeightMin));
      CHECK(text.find("waits for worker 3, worker 14") != std::string::npos);
      CHECK((text == whole) == (height >= lines));
    }
  }
  // 12 servers and 12 workers: what is shown and what is left out are all of them.
  const std::string text = StatusText(Busy(), 80, 30);
  CHECK(text.find("\n  worker") != std::string::npos);
  CHECK(text.find("accuracy") != std::string::npos);
  int told = 0, more = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::EndsWith(line, " more")) {
      ++told;
      more += std::stoi(std::string(line));
    }
  }
  CHECK(told == 2);
  const std::string whole = StatusText(Busy(), 80);
  CHECK(std::count(whole.begin(), whole.end(), '\n') - std::count(text.begin(), text.end(), '\n') ==
        more - told);
}

TEST_CASE("a resumed job's training time is told apart from this run's", "[cli][status]") {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_train_seconds(9);
  status.set_wall_seconds(0.5);
  status.mutable_checkpoint()->set_resumed_step(20);
  CHECK(absl::StrContains(StatusText(status, 80),
                          "9.0s of training since the job began, 0.5s in this run, "));
}

TEST_CASE("a server that has its own share alone says who tells of the whole job",
          "[cli][status]") {
  v1::JobStatus status;
  status.set_state("training");
  status.add_servers()->set_rank(1);
  CHECK(absl::StrContains(StatusText(status, 80),
                          "this server's own share; the whole job: ask server 0\n"));
  status.mutable_coordinator()->set_address("10.0.0.1:7000");
  CHECK(absl::StrContains(StatusText(status, 80), "the whole job: tessera status 10.0.0.1:7000\n"));
  status.set_job("digits");
  CHECK(!absl::StrContains(StatusText(status, 80), "own share"));
}

TEST_CASE("a server that does not know the job's times tells none", "[cli][status]") {
  v1::JobStatus status;
  status.set_state("training");
  status.add_servers();
  CHECK(StatusText(status, 80).find("of training") == std::string::npos);
  status.set_wall_seconds(0.5);
  CHECK(StatusText(status, 80).find("0.0s of training, 0.5s in all") != std::string::npos);
}

TEST_CASE("a long name leaves room for state and method, and is cut between characters",
          "[cli][status]") {
  v1::JobStatus status;
  status.set_state("training");
  status.set_method("data_parallel");
  std::string name;
  for (int i = 0; i < 100; ++i) name += "\u00e9";
  status.set_job(name);
  for (int width : {33, 40, 80}) {
    const std::string text = StatusText(status, width);
    const size_t at = text.find("~: training, data_parallel\n");
    REQUIRE(at == 2 * static_cast<size_t>(std::max(8, width - 25) - 1));
    CHECK(text.substr(0, at) == name.substr(0, at));
  }
  CHECK(absl::StartsWith(StatusText(status, 200), name + ": training, data_parallel\n"));
  // A control character of two bytes.
  status.set_job("a\u009b31mb");
  CHECK(absl::StartsWith(StatusText(status, 80), "a?31mb: "));
  // One that turns the direction of writing.
  status.set_job("a\u202eb");
  CHECK(absl::StartsWith(StatusText(status, 80), "a?b: "));
}

TEST_CASE("what a low terminal has no room for is named, and free lines are used",
          "[cli][status]") {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_state("training");
  for (int i = 0; i < 2; ++i) {
    status.add_servers()->set_rank(i);
    status.add_members()->set_rank(i);
    status.add_history()->set_step(i);
  }
  const std::string whole = StatusText(status, 80);
  const auto lines = static_cast<int>(std::count(whole.begin(), whole.end(), '\n'));
  CHECK(absl::EndsWith(StatusText(status, 80, lines - 1), "\nnot shown: 2 evaluations\n"));
  CHECK(absl::EndsWith(StatusText(status, 80, 7), "\nnot shown: 2 workers, 2 evaluations\n"));
  CHECK(StatusText(status, 80, 3) ==
        "digits: training\nnot shown: 2 servers, 2 workers, 2 evaluations\n");
  // Twelve servers, then workers that do not fit: their lines are the servers'.
  for (int i = 2; i < 12; ++i) status.add_servers()->set_rank(i);
  for (int height = 5; height < 12; ++height) {
    const std::string text = StatusText(status, 80, height);
    INFO(text);
    CHECK(std::count(text.begin(), text.end(), '\n') == (height == 5 ? 2 : height));
  }
}

TEST_CASE("a silence is told in whole seconds, in a line that fits", "[cli][status]") {
  CHECK(SilenceLine("10.0.0.1:7000", absl::Seconds(12.7), 80) ==
        "no news from 10.0.0.1:7000 for 12s\n");
  CHECK(SilenceLine("10.0.0.1:7000", absl::Seconds(12.7), 0) == "no news fro~\n");
}

TEST_CASE("the JSON form is one line with the names of the contract", "[cli][status]") {
  const std::string json = StatusJson(Busy());
  CHECK(json.find('\n') == std::string::npos);
  CHECK(json.find("\"train_seconds\":123456.7") != std::string::npos);
  CHECK(json.find("\"partial_pushes\":") != std::string::npos);
}

// As protobuf writes it in one piece.
std::string PlainJson(const v1::JobStatus& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  REQUIRE(google::protobuf::util::MessageToJsonString(status, &text, options).ok());
  return text;
}

TEST_CASE("the JSON form is what protobuf writes, though its lists are written item by item",
          "[cli][status]") {
  CHECK(StatusJson({}) == PlainJson({}));
  CHECK(StatusJson(Busy()) == PlainJson(Busy()));
  CHECK(StatusJson(WholeStatus()) == PlainJson(WholeStatus()));
  v1::JobStatus odd;
  odd.set_job("\"members\":[],\\\"[{");
  odd.add_waiting_for("]}\\");
  odd.add_history();
  CHECK(StatusJson(odd) == PlainJson(odd));
}

TEST_CASE("the JSON form of a large status takes little memory", "[cli][status][strangers]") {
  v1::JobStatus status = WholeStatus();
  while (status.history_size() < 60'000) *status.add_history() = WholeStatus().history(0);
  const uint64_t before = ReadProcessMemory().peak_rss_bytes;
  const std::string json = StatusJson(status);
  CHECK(json.size() > (8 << 20));
  // The text, while it grows, and a few copies of the message.
  CHECK(ReadProcessMemory().peak_rss_bytes - before < 8 * json.size());
}

TEST_CASE("a redraw goes back as far as was drawn and erases the rest", "[cli][status]") {
  CHECK(Redraw("a\nb\n", 0) == "a\x1b[K\nb\x1b[K\n\x1b[J");
  CHECK(Redraw("a\n", 3) == "\x1b[3A\ra\x1b[K\n\x1b[J");
}

}  // namespace
}  // namespace tessera

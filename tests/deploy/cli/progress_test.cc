#include "deploy/cli/progress.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

namespace tessera {
namespace {

v1::JobStatus Training() {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_method("data_parallel");
  status.set_state("training");
  status.set_epoch(3.25);
  status.set_step(1234);
  status.set_examples_per_second(34556.4);
  status.set_train_seconds(12.34);
  for (const char* state : {"training", "evaluating", "lost"}) {
    status.add_members()->set_state(state);
  }
  return status;
}

// Of the evaluation of this step, made after so many seconds.
void Evaluated(uint64_t step, double seconds, v1::JobStatus* status) {
  v1::HistoryEntry& entry = *status->add_history();
  entry.set_step(step);
  entry.set_epoch(static_cast<double>(step) / 100);
  entry.set_seconds(seconds);
}

// Of the lines, the first column.
std::vector<std::string> Heads(const std::vector<std::string>& lines) {
  std::vector<std::string> heads;
  for (const std::string& line : lines) {
    const size_t begin = line.find_first_not_of(' ');
    const bool is_words = line.find("the job") == 0;
    heads.push_back(is_words ? line : line.substr(begin, line.find(' ', begin) - begin));
  }
  return heads;
}

using Lines = std::vector<std::string>;

TEST_CASE("evaluations that are made again after the job went back are shown again",
          "[cli][progress]") {
  Progress progress(false);
  v1::JobStatus status = Training();
  for (uint64_t e = 1; e <= 6; ++e) Evaluated(100 * e, 10.0 * e, &status);
  CHECK(Heads(progress.NewLines(status)) ==
        Lines{"epoch", "1.0", "2.0", "3.0", "4.0", "5.0", "6.0"});
  CHECK(progress.NewLines(status).empty());
  status.set_checkpoint_step(350);
  status.mutable_checkpoint()->set_rollbacks(1);
  status.mutable_history()->DeleteSubrange(3, 3);
  SECTION("seen while the history is shorter") {
    CHECK(progress.NewLines(status) == Lines{"the job went back to its checkpoint of step 350"});
    CHECK(progress.NewLines(status).empty());
    Evaluated(400, 71, &status);
    CHECK(Heads(progress.NewLines(status)) == Lines{"4.0"});
  }
  SECTION("seen once it is as long as before") {
    for (uint64_t e = 4; e <= 6; ++e) Evaluated(100 * e, 30.0 + 10.0 * e, &status);
    CHECK(Heads(progress.NewLines(status)) ==
          Lines{"the job went back to its checkpoint of step 350", "4.0", "5.0", "6.0"});
  }
  SECTION("seen with a later checkpoint, which is not the one that it went back to") {
    Evaluated(400, 71, &status);
    status.set_checkpoint_step(450);
    CHECK(Heads(progress.NewLines(status)) ==
          Lines{"the job went back, to before step 400", "4.0"});
  }
  SECTION("none was made since the checkpoint") {
    for (uint64_t e = 4; e <= 6; ++e) Evaluated(100 * e, 10.0 * e, &status);
    status.set_checkpoint_step(650);
    CHECK(progress.NewLines(status) == Lines{"the job went back to its checkpoint of step 650"});
  }
  SECTION("to before the first of all") {
    status.clear_history();
    status.set_checkpoint_step(50);
    CHECK(progress.NewLines(status) == Lines{"the job went back to its checkpoint of step 50"});
    Evaluated(100, 71, &status);
    CHECK(Heads(progress.NewLines(status)) == Lines{"1.0"});
  }
}

TEST_CASE("evaluations that a coordinator has forgotten are shown again", "[cli][progress]") {
  Progress progress(false);
  v1::JobStatus status = Training();
  for (uint64_t e = 1; e <= 3; ++e) Evaluated(100 * e, 10.0 * e, &status);
  CHECK(progress.NewLines(status).size() == 4);
  status.mutable_history()->RemoveLast();
  Evaluated(300, 35, &status);
  CHECK(Heads(progress.NewLines(status)) == Lines{"the job went back, to before step 300", "3.0"});
}

TEST_CASE("a status without the earlier evaluations tells of nothing that went back",
          "[cli][progress]") {
  Progress progress(false);
  v1::JobStatus status = Training();
  for (uint64_t e = 1; e <= 3; ++e) Evaluated(100 * e, 10.0 * e, &status);
  const v1::JobStatus whole = status;
  CHECK(progress.NewLines(status).size() == 4);
  status.clear_history();
  CHECK(progress.NewLines(status).empty());
  CHECK(progress.NewLines(whole).empty());
  // server/control/status_limit.h
  Evaluated(300, 30, &status);
  CHECK(progress.NewLines(status).empty());
  status.clear_history();
  Evaluated(400, 40, &status);
  CHECK(Heads(progress.NewLines(status)) == Lines{"4.0"});
  status.mutable_checkpoint()->set_rollbacks(1);
  status.set_checkpoint_step(350);
  status.clear_history();
  Evaluated(400, 55, &status);
  CHECK(Heads(progress.NewLines(status)) ==
        Lines{"the job went back to its checkpoint of step 350", "4.0"});
}

TEST_CASE("the status line counts live workers only and groups digits", "[cli][progress]") {
  CHECK(Progress::StatusLine(Training(), 200, false) ==
        "training  epoch 3.2  step 1234  34,556 examples/s  12.3 s  2 workers");
}

TEST_CASE("the status line says of how many steps, and how long they take at this rate",
          "[cli][progress]") {
  v1::JobStatus status = Training();
  status.set_steps_planned(12340);
  CHECK_THAT(Progress::StatusLine(status, 200, false),
             Catch::Contains("  step 1234 of 12340, 1m52s left  34,556"));
  status.set_steps_planned(1234000);
  CHECK_THAT(Progress::StatusLine(status, 200, false), Catch::Contains("of 1234000, 3h26m left  "));
  // Nobody can tell yet, or any more.
  status.set_train_seconds(0.5);
  CHECK_THAT(Progress::StatusLine(status, 200, false), Catch::Contains("step 1234 of 1234000  "));
  status.set_train_seconds(10);
  status.set_steps_planned(1234);
  CHECK_THAT(Progress::StatusLine(status, 200, false), Catch::Contains("step 1234 of 1234  "));
}

TEST_CASE("the status line has a bar as wide as there is room, where the end is known",
          "[cli][progress]") {
  v1::JobStatus status = Training();
  CHECK(Progress::StatusLine(status, 200, false).find('[') == std::string::npos);
  status.set_steps_planned(2468);
  CHECK(Progress::StatusLine(status, 200, false) ==
        "training  [###############...............]  50%  epoch 3.2  step 1234 of 2468, 13s left  "
        "34,556 examples/s  12.3 s  2 workers");
  CHECK(Progress::StatusLine(status, 79, false) ==
        "training  [#######.......]  50%  step 1234 of 2468, 13s left  34,556 examples/s");
  CHECK(Progress::StatusLine(status, 60, false) ==
        "training  step 1234 of 2468, 13s left  34,556 examples/s");
  status.set_step(2468);
  CHECK_THAT(Progress::StatusLine(status, 79, false),
             Catch::Contains("#] 100%  epoch 3.2  step 2468 of 2468  "));
  status.set_step(2467);
  CHECK_THAT(Progress::StatusLine(status, 79, false),
             Catch::Contains(".]  99%  step 2467 of 2468"));
}

TEST_CASE("the summary of a job that was stopped says where and by whom", "[cli][progress]") {
  v1::JobStatus status = Training();
  status.set_steps_planned(5000);
  CHECK(Progress::Summary(status, "").find("outcome") == std::string::npos);
  status.set_outcome("finished");
  CHECK(Progress::Summary(status, "").find("outcome") == std::string::npos);
  status.set_outcome("stopped");
  CHECK_THAT(Progress::Summary(status, ""),
             Catch::Contains("\n  outcome      stopped at step 1234 of 5000\n"));
  status.set_stop_reason("SIGINT to tessera run");
  CHECK_THAT(
      Progress::Summary(status, ""),
      Catch::Contains("\n  outcome      stopped at step 1234 of 5000 (SIGINT to tessera run)\n"));
}

TEST_CASE("the summary says what became of the model, where there is something to say",
          "[cli][progress]") {
  CHECK(Progress::Summary(Training(), "r.json").find("\n  model ") == std::string::npos);
  CHECK_THAT(Progress::Summary(Training(), "r.json", kTextWidthMax, "not kept"),
             Catch::Contains("\n  model        not kept\n  report       r.json\n"));
}

TEST_CASE("the status line says for whom the job waits", "[cli][progress]") {
  v1::JobStatus status;
  status.set_state("waiting");
  status.add_waiting_for("server 1");
  status.add_waiting_for("worker 0");
  CHECK(Progress::StatusLine(status, 80, false) == "waiting for server 1, worker 0");
  v1::JobStatus training = Training();
  training.add_waiting_for("worker 1");
  CHECK(Progress::StatusLine(training, 200, true).find("waiting for worker 1") !=
        std::string::npos);
  CHECK(Progress::StatusLine(training, 200, false).find("waiting") == std::string::npos);
}

TEST_CASE("the status line says that the last checkpoint is tried again, and for whom nobody waits",
          "[cli][progress]") {
  v1::JobStatus status = Training();
  status.set_state("waiting");
  status.add_waiting_for("worker 0");
  status.mutable_checkpoint()->set_failure("\"ckpt\": No space left on device");
  CHECK(Progress::StatusLine(status, 80, false) == "waiting for worker 0");
  status.mutable_checkpoint()->set_failure(
      "\"ckpt\": No space left on device; it is the last one, tried again in 4s");
  for (const char* state : {"waiting", "training"}) {
    status.set_state(state);
    CHECK(Progress::StatusLine(status, 76, true) ==
          "the last checkpoint failed, tried again in 4s: \"ckpt\": No space left on devi");
  }
  // Once all is over the table tells.
  status.set_state("done");
  CHECK(Progress::StatusLine(status, 200, false).find("checkpoint") == std::string::npos);
}

TEST_CASE("the status line never overflows the terminal", "[cli][progress]") {
  v1::JobStatus planned = Training();
  planned.set_steps_planned(1300);
  for (int width = 0; width < 150; ++width) {
    CHECK(static_cast<int>(Progress::StatusLine(Training(), width, true).size()) <= width);
    CHECK(static_cast<int>(Progress::StatusLine(planned, width, true).size()) <= width);
  }
}

TEST_CASE("what others say steers no terminal, and is cut between characters", "[cli][progress]") {
  v1::JobStatus status = Training();
  status.mutable_checkpoint()->set_failure("\x1b[2J\u00e9; it is the last one, tried again in 4s");
  const std::string whole = Progress::StatusLine(status, 200, false);
  CHECK(whole == "the last checkpoint failed, tried again in 4s: \\x1b[2J\u00e9");
  const auto bytes = static_cast<int>(whole.size());
  CHECK(Progress::StatusLine(status, bytes - 1, false) == whole.substr(0, whole.size() - 2));
  CHECK(Progress::Summary(status, "").find('\x1b') == std::string::npos);
}

TEST_CASE("an evaluation before which nothing was trained has no train loss", "[cli][progress]") {
  v1::HistoryEntry entry;
  entry.set_epoch(40);
  entry.set_seconds(2.37);
  entry.set_train_loss(-NAN);
  entry.set_test_loss(0.1891);
  entry.set_test_accuracy(0.9467);
  CHECK(Progress::HistoryLine(entry) == "    40.0       2.37           -      0.1891    0.9467");
  entry.set_train_loss(0.0106);
  CHECK(Progress::HistoryLine(entry) == "    40.0       2.37      0.0106      0.1891    0.9467");
}

TEST_CASE("columns stay where they are, however large a loss is", "[cli][progress]") {
  for (const double loss : {0.5, -1.0, 9999.4, 123456.789, -1.5e300}) {
    v1::HistoryEntry entry;
    entry.set_train_loss(loss);
    entry.set_test_loss(loss);
    CHECK(Progress::HistoryLine(entry).size() == 53);
  }
}

TEST_CASE("the summary gives rate and traffic of all workers together", "[cli][progress]") {
  v1::JobStatus status = Training();
  status.set_train_seconds(2);
  status.set_wall_seconds(3);
  status.set_members_lost(1);
  status.set_examples(2000000);
  status.mutable_unreported()->set_pull_payload_bytes(1 << 20);
  status.add_history()->set_test_accuracy(0.9467);
  for (int k = 0; k < 2; ++k) {
    v1::WorkerReport* report = status.add_worker_reports();
    report->set_pull_payload_bytes(3 << 20);
    report->set_push_payload_bytes(512);
  }
  const std::string text = Progress::Summary(status, "r.json");
  CHECK(text.find("digits (data_parallel): 2.0 s of training, 3.0 s in all") != std::string::npos);
  CHECK(text.find("0.9467") != std::string::npos);
  CHECK(text.find("1,000,000") != std::string::npos);
  CHECK(text.find("pulled 7.0 MiB, pushed 1.0 KiB") != std::string::npos);
  CHECK(text.find("1 worker") != std::string::npos);
  CHECK(text.find("r.json") != std::string::npos);
}

TEST_CASE("the summary of a resumed job tells apart what the job and what this run took",
          "[cli][progress]") {
  v1::JobStatus status = Training();
  status.set_train_seconds(0.4);
  status.set_wall_seconds(0.3);
  status.set_examples(400);
  status.mutable_checkpoint()->set_resumed_step(0);
  const std::string text = Progress::Summary(status, "");
  CHECK_THAT(text, Catch::Contains("digits (data_parallel): 0.4 s of training since the job began, "
                                   "0.3 s in this run\n"));
  CHECK_THAT(text, Catch::Contains("  examples/s   1,000 since the job began\n"));
}

TEST_CASE("the summary is no wider than a narrow terminal where words can be broken",
          "[cli][progress]") {
  v1::JobStatus status = Training();
  status.set_method_description("each minibatch all gradients are averaged and then applied once");
  CHECK_THAT(Progress::Summary(status, "", 40),
             Catch::Contains("\n  method       each minibatch all\n"
                             "               gradients are averaged\n"
                             "               and then applied once\n"));
  // However narrow it is there is room for a word.
  CHECK_THAT(Progress::Summary(status, "", 1),
             Catch::Contains("  method       each minibatch all\n"));
}

TEST_CASE("the summary tells of the last checkpoint, and of one that failed after it",
          "[cli][progress]") {
  v1::JobStatus status = Training();
  CHECK(Progress::Summary(status, "").find("checkpoint") == std::string::npos);
  v1::CheckpointStatus& checkpoint = *status.mutable_checkpoint();
  checkpoint.set_failure("\"ckpt/partial-step-000000000400\": No space left on device");
  CHECK(Progress::Summary(status, "").find("\n  checkpoint   none of this run\n") !=
        std::string::npos);
  checkpoint.set_count(3);
  checkpoint.set_step(300);
  checkpoint.set_bytes(40 << 10);
  CHECK(Progress::Summary(status, "")
            .find("\n  checkpoint   of step 300, 40.0 KiB\n"
                  "  FAILED       \"ckpt/partial-step-000000000400\": No space "
                  "left on device\n") != std::string::npos);
  checkpoint.clear_failure();
  CHECK(Progress::Summary(status, "").find("FAILED") == std::string::npos);
}

TEST_CASE("the summary wraps the method's words beside their name", "[cli][progress]") {
  v1::JobStatus status = Training();
  std::string words;
  for (int i = 0; i < 40; ++i) words += "word" + std::to_string(i) + (i < 39 ? " " : "");
  status.set_method_description(words);
  const std::string text = Progress::Summary(status, "");
  size_t begin = text.find("\n  method       word0 word1 ") + 1;
  REQUIRE(begin > 0);
  std::string joined = "  method      ";
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    CHECK(line.size() < 80);
    if (line.find("word") == std::string::npos) break;
    if (joined.size() > 14) CHECK(line.substr(0, 15) == std::string(15, ' '));
    joined += " " + line.substr(15);
  }
  CHECK(joined == "  method       " + words);
}

TEST_CASE("the summary tells of staleness where pushes may be late", "[cli][progress]") {
  v1::JobStatus status = Training();
  v1::ServerCounters& counters = *status.add_servers()->mutable_counters();
  for (uint64_t count : {1, 2, 1}) counters.add_staleness_histogram(count);
  CHECK(Progress::Summary(status, "").find("staleness") == std::string::npos);
  status.set_free_running(true);
  counters.set_staleness_sum(4);
  counters.set_staleness_max(2);
  CHECK(Progress::Summary(status, "").find("\n  staleness    mean 1.00, max 2\n") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera

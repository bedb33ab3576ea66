// What becomes of a coordinator's replies that no coordinator of ours would give.
#include "worker/train/message_coordination.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>

namespace tessera {
namespace {

class Scripted final : public MessageCoordination {
 public:
  v1::EpochCut cut;
  v1::EvaluateReply reply;

  Exchange drain_exchange() const override { return Exchange(0); }
  int64_t step_budget() const override { return 0; }
  absl::Status BeginTraining() override { return absl::OkStatus(); }
  void SetProgress(const TrainProgress&) override {}

 private:
  absl::StatusOr<v1::EpochCut> AskEpoch(uint64_t, uint64_t) override { return cut; }
  absl::StatusOr<v1::EvaluateReply> AskEvaluation(v1::EvaluateRequest) override { return reply; }
};

v1::EpochCut Cut(uint32_t parts, uint32_t part, uint64_t steps, uint64_t first_step) {
  v1::EpochCut cut;
  cut.set_parts(parts);
  cut.set_part(part);
  cut.set_steps(steps);
  cut.set_first_step(first_step);
  return cut;
}

TEST_CASE("an epoch that this worker cannot be in is refused", "[train][coordination]") {
  Scripted coordinator;
  const auto why = [&](v1::EpochCut cut) {
    coordinator.cut = std::move(cut);
    return std::string(coordinator.BeginEpoch(3, 12).status().message());
  };
  CHECK(why(Cut(2, 1, 4, 12)).empty());
  CHECK(why(Cut(2, 2, 4, 10)).empty());
  CHECK(why(Cut(0, 0, 4, 12)).find("epoch 3: part is 0 of 0, want one of 1 or more") == 0);
  CHECK(why(Cut(2, 3, 4, 12)).find("epoch 3: part is 3 of 2, want one of 1 or more") == 0);
  CHECK(why(Cut(2, 1, 4, 13)).find("epoch 3: begins at step 13, want at most 12") == 0);
  CHECK(why(Cut(2, 1, ~uint64_t{0}, 12)).find("epoch 3: has 18446744073709551615 steps") == 0);
  v1::EpochCut dealt = Cut(2, 1, 4, 12);
  dealt.set_batch_rows(40);
  dealt.set_rows_before(24);
  CHECK(why(dealt).empty());
  CHECK(coordinator.BeginEpoch(3, 12)->batch_rows == 40);
  CHECK(coordinator.BeginEpoch(3, 12)->rows_before == 24);
  dealt.set_rows_before(uint64_t{1} << 63);
  CHECK(why(dealt).find("epoch 3: has minibatches of 40 rows behind 9223372036854775808") == 0);
}

TEST_CASE("a worker that is told only of epochs that are over asks so often and no more",
          "[train][coordination][strangers]") {
  Scripted coordinator;
  coordinator.cut = Cut(2, 1, 4, 8);
  uint64_t asked = 0;
  while (asked < 100'000 && coordinator.BeginEpoch(asked, 12).ok()) ++asked;
  CHECK(asked == 4096);
  CHECK(coordinator.BeginEpoch(5000, 12).status().message() ==
        "epoch 5000: is over at step 12, as are the 4096 before it, want one that this worker can "
        "begin; all must run the same build");
  // One that can be begun ends the row.
  coordinator.cut = Cut(2, 1, 5, 8);
  CHECK(coordinator.BeginEpoch(3, 12).ok());
  coordinator.cut = Cut(2, 1, 4, 8);
  CHECK(coordinator.BeginEpoch(3, 12).ok());
}

TEST_CASE("a loss is told once one is known, and may then be 0", "[train][coordination]") {
  TrainProgress progress;
  CHECK_FALSE(ToProto(progress).has_train_loss());
  progress.train_loss = 0;
  CHECK(ToProto(progress).has_train_loss());
}

TEST_CASE("a part of an evaluation that there is not is refused", "[train][coordination]") {
  Scripted coordinator;
  coordinator.reply.set_parts(2);
  coordinator.reply.set_part(1);
  const absl::StatusOr<EvaluationPlace> place = coordinator.Arrive({});
  REQUIRE(place.ok());
  CHECK(place->part == 1);
  CHECK(place->parts == 2);
  coordinator.reply.set_part(2);
  CHECK(coordinator.Arrive({}).status().message() ==
        "evaluation: part is 2 of 2, want one of them; all must run the same build");
  coordinator.reply.Clear();
  CHECK(coordinator.Arrive({}).status().message() ==
        "evaluation: part is 0 of 0, want one of them; all must run the same build");
  // One that is told to begin anew has none.
  coordinator.reply.set_restart(true);
  CHECK(coordinator.Arrive({}).ok());
}

}  // namespace
}  // namespace tessera

#include "deploy/cli/length_notes.h"

#include <catch2/catch.hpp>

#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

using Said = std::vector<std::string>;

// What a tail wants.
constexpr char kNormed[] =
    "model.layers=[{linear: {units: 32, bias: false}}, batch_norm, relu, {linear: {units: 10, "
    "bias: false}}, batch_norm: {affine: false}]";

// kJob has 2 workers with minibatches of 16 rows, and 3 epochs.
Said Notes(const std::vector<std::string>& overrides, std::optional<int64_t> rows = std::nullopt) {
  const v1::Job job = Good(kJob, overrides);
  return LengthNotesOn(job, *RecipeFor(job), rows);
}

// The same with so many steps in place of epochs.
Said InSteps(int64_t steps, std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"train.epochs=", "train.steps=" + std::to_string(steps)});
  return Notes(overrides);
}

TEST_CASE("numbers within the job's length have no note", "[length_notes]") {
  CHECK(Notes({}).empty());
  CHECK(Notes({}, 32 * 7).empty());
  CHECK(InSteps(20, {}).empty());
  CHECK(InSteps(1000, {"checkpoint={directory: x, every_steps: 1000}", "train.target_accuracy=0.9",
                       "train.schedule={warmup: 32000, decay: {step: {every: 32000}}}"})
            .empty());
  // More examples than a number holds.
  CHECK(InSteps(1000000000000, {"train.batch_size=1048576", "cluster.workers=1024",
                                "train.schedule={warmup: 1000}"})
            .empty());
}

TEST_CASE("a job of tensors has epochs of its own, and examples that nobody knows",
          "[length_notes]") {
  v1::Job job;
  job.mutable_model()->mutable_tensor_layout();
  job.mutable_train()->set_steps(100);
  job.mutable_train()->set_evaluate_every(3);
  job.mutable_train()->mutable_schedule()->set_warmup(int64_t{1} << 50);
  job.mutable_cluster()->set_workers(2);
  job.mutable_method()->mutable_data_parallel();
  const auto notes = [&job] { return LengthNotesOn(job, *RecipeFor(job), std::nullopt); };
  CHECK(notes() == Said{"train.evaluate_every: is 3, and the job has 1 epoch: the model is "
                        "evaluated at the end alone"});
  job.mutable_train()->set_steps_per_epoch(40);
  CHECK(notes().empty());
  job.mutable_train()->set_steps_per_epoch(50);
  CHECK(notes().size() == 1);
}

TEST_CASE("an outer momentum that a short job does not settle is noted", "[length_notes]") {
  const auto diloco = [](int64_t steps, const std::string& keys) {
    return InSteps(steps, {"method={diloco: {local_steps: 50" + keys + "}}"});
  };
  CHECK(diloco(2000, "") ==
        Said{"method.diloco.local_steps: is 50, and the job has 40 exchanges: an outer_momentum of "
             "0.9 wants 100 or more to settle; with so few outer_momentum 0.5 and "
             "outer_learning_rate 1 end at a lower loss (docs/methods.md#few-exchanges)"});
  CHECK(diloco(4950, "").size() == 1);
  CHECK(diloco(4951, "").empty());
  CHECK(diloco(2000, ", outer_momentum: 0.5").empty());
  CHECK(diloco(2000, ", outer_momentum: 0.6").empty());
  CHECK(diloco(1200, ", outer_momentum: 0.6").size() == 1);
  CHECK(diloco(2000, ", asynchronous: true").empty());
  // One exchange has no momentum behind it.
  CHECK(diloco(50, "").empty());
  // In epochs only the rows tell.
  const std::vector<std::string> in_epochs = {"method={diloco: {local_steps: 2}}"};
  CHECK(Notes(in_epochs).empty());
  CHECK(Notes(in_epochs, 32 * 6).size() == 1);
  CHECK(WantsRows(Good(kJob, in_epochs)));
  CHECK(!WantsRows(Good(kJob, {"method={diloco: {outer_momentum: 0.5}}"})));
}

TEST_CASE("an exchange that never comes before the end is noted", "[length_notes]") {
  CHECK(
      InSteps(19, {}) ==
      Said{"method.local_sgd.local_steps: is 20, and the job has 19 steps: workers exchange once, "
           "at the end"});
  // 6 steps an epoch.
  CHECK(Notes({}, 32 * 6) ==
        Said{"method.local_sgd.local_steps: is 20, and the job has 18 steps of each worker in its "
             "3 epochs: workers exchange once, at the end"});
  CHECK(InSteps(19, {"method={ist: {local_steps: 20}}"}).size() == 1);
  // It always does.
  CHECK(InSteps(19, {"method=ensemble"}).empty());
}

TEST_CASE("pushes that have no room for all entries together are noted", "[length_notes]") {
  const std::string few = "codec={push: {topk: {k: 512}}}";
  CHECK(InSteps(121, {few}) ==
        Said{"codec.push: topk (512 of 4096): 7 exchanges have room for 88% of a worker's entries, "
             "and the others are never sent; for more of them give more exchanges or a larger k"});
  CHECK(InSteps(141, {few}).empty());
  CHECK(InSteps(121, {"codec={push: threshold}"}).empty());
}

TEST_CASE("a warm-up that lasts as long as the job is noted", "[length_notes]") {
  const std::vector<std::string> warm = {"method={decentralized: {warmup_steps: 42}}",
                                         "checkpoint={}"};
  // Worker 0 alone makes 14 steps in an epoch.
  CHECK(Notes(warm, 16 * 14) == Said{"method.decentralized.warmup_steps: is 42, and the job has 42 "
                                     "steps of each worker in its 3 epochs: it "
                                     "ends before workers other than 0 begin"});
  CHECK(Notes({"method={decentralized: {warmup_steps: 25}}", "checkpoint={}"}, 16 * 14).empty());
  CHECK(Notes(warm, 16 * 15).empty());
  CHECK(Notes(warm).empty());
  CHECK(WantsRows(Good(kJob, warm)));
  CHECK_FALSE(WantsRows(Good(kJob)));
}

TEST_CASE("a tail that is the whole job is noted", "[length_notes]") {
  const std::vector<std::string> tail = {"method={ist: {local_steps: 2, tail_steps: 18}}", kNormed};
  CHECK(Notes(tail, 32 * 6) ==
        Said{"method.ist.tail_steps: is 18, and the job has 18 steps of each worker in its 3 "
             "epochs: no subnet is trained; for local steps alone use local_sgd"});
  CHECK(Notes(tail, 32 * 7).empty());
  CHECK(WantsRows(Good(kJob, tail)));
  CHECK_FALSE(WantsRows(Good(kJob, {"method=ist"})));
}

TEST_CASE("checkpoints that are never due are noted", "[length_notes]") {
  const std::vector<std::string> kept = {"checkpoint={directory: x, every_steps: 51}"};
  CHECK(InSteps(50, kept) == Said{"checkpoint.every_steps: is 51, and the job has 50 steps: the "
                                  "only checkpoint is that of the end"});
  CHECK(InSteps(51, kept).empty());
}

TEST_CASE("a core that is never chosen anew is noted", "[length_notes]") {
  const std::vector<std::string> slim = {"method={slim_dp: {local_steps: 2, core_every: 11}}"};
  CHECK(InSteps(20, slim) ==
        Said{"method.slim_dp.core_every: is 11, and the job has 10 exchanges: the core stays what "
             "it is at the start"});
  CHECK(InSteps(21, slim).empty());
  CHECK(InSteps(20, {"method={slim_dp: {local_steps: 2, core_every: 11, beta: 0}}"}).empty());
}

TEST_CASE("evaluations that are never due are noted, and what waits for them", "[length_notes]") {
  CHECK(Notes({"train.evaluate_every=4"}) ==
        Said{"train.evaluate_every: is 4, and the job has 3 epochs: the model is evaluated at the "
             "end alone"});
  CHECK(Notes({"train.evaluate_every=3", "train.target_accuracy=0.9"}).empty());
  const std::string target =
      "train.target_accuracy: ends nothing early, as the model is evaluated at the end alone";
  CHECK(Notes({"train.evaluate_every=0", "train.target_accuracy=0.9"}) == Said{target});
  CHECK(Notes({"train.evaluate_every=4", "train.target_accuracy=0.9"}).back() == target);
  // Two epochs and a step: the third is begun.
  const std::vector<std::string> in_steps = {"train.epochs=", "train.steps=43",
                                             "train.evaluate_every=4"};
  CHECK(Notes(in_steps).empty());
  CHECK(Notes(in_steps, 32 * 21) == Said{"train.evaluate_every: is 4, and the job has 3 epochs: "
                                         "the model is evaluated at the end alone"});
}

TEST_CASE("rates that never become what they should are noted", "[length_notes]") {
  CHECK(InSteps(100, {"train.schedule={warmup: 3201}"}) ==
        Said{"train.schedule.warmup: is 3201, and the job learns from 3200 examples: the "
             "learning rate never becomes what is set"});
  CHECK(InSteps(100, {"train.schedule={decay: {step: {every: 3201}}}"}) ==
        Said{"train.schedule.decay.step.every: is 3201, and the job learns from 3200 examples: "
             "the learning rate never drops"});
  CHECK(InSteps(100, {"train.schedule={decay: {milestones: {at: [1600, 3200]}}}"}).empty());
  CHECK(InSteps(100, {"train.schedule={decay: {milestones: {at: [1600, 3201]}}}"}) ==
        Said{"train.schedule.decay.milestones.at: is 3201, and the job learns from 3200 examples: "
             "the learning rate never drops there"});
  CHECK(Notes({"train.schedule={warmup: 2017}"}, 32 * 21).size() == 1);
}

}  // namespace
}  // namespace tessera

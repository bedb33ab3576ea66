#include "deploy/cli/check_notes.h"

#include <catch2/catch.hpp>

#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

std::vector<std::string> Notes(const std::vector<std::string>& overrides) {
  const v1::Job job = Good(kJob, overrides);
  return NotesOn(job, *RecipeFor(job));
}

TEST_CASE("a job that does what it says has no note", "[check_notes]") {
  CHECK(Notes({}).empty());
  CHECK(Notes({"codec={push: int8, pull: bf16}"}).empty());
  CHECK(Notes({"method=ist"}).empty());
  CHECK(Notes({"method=ensemble"}).empty());
  CHECK(Notes({"checkpoint={directory: x, every_steps: 5}", "train.target_accuracy=0.9"}).empty());
}

TEST_CASE("an outer momentum beside pushes of the largest entries is noted", "[check_notes]") {
  const auto notes = [](const std::string& keys, const std::string& push) {
    return Notes({"method={diloco: {" + keys + "}}", "codec={push: " + push + "}"});
  };
  const std::vector<std::string> told = notes("outer_momentum: 0.5", "topk");
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("method.diloco.outer_momentum: got 0.5 beside codec.push topk, ") == 0);
  CHECK(notes("outer_momentum: 0, outer_learning_rate: 1", "topk").empty());
  CHECK(notes("outer_momentum: 0.5", "threshold").empty());
}

TEST_CASE("a quorum without a grace is noted where it can leave members out", "[check_notes]") {
  const auto notes = [](const std::string& keys) {
    return Notes({"cluster.workers=4", "method={diloco: {" + keys + "}}"});
  };
  const std::vector<std::string> told = notes("quorum: {pushes: 3}");
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("method.diloco.quorum: got 3 of 4 pushes and no grace") == 0);
  CHECK(notes("quorum: {pushes: 3, grace: 100ms}").empty());
  CHECK(notes("quorum: {pushes: 3, adaptive_grace: true}").empty());
  CHECK(notes("quorum: {pushes: 4}").empty());
  CHECK(notes("local_steps: 50").empty());
}

TEST_CASE("an input that seems to have its channels last is noted", "[check_notes]") {
  const std::string layers =
      "model.layers=[{conv2d: {channels: 4, kernel: 1}}, {linear: {units: 10}}]";
  CHECK(Notes({"model.input=[3, 8, 8]", layers}).empty());
  CHECK(Notes({"model.input=[8, 8, 8]", layers}).empty());
  CHECK(Notes({"model.input=[8, 8, 3]", layers}) ==
        std::vector<std::string>{
            "model.input: [8, 8, 3] is 8 channels of 8 x 3; where the channels are "
            "3, write [3, 8, 8] and save the rows so: x.transpose(0, 3, 1, 2)"});
}

TEST_CASE("rounds of values that are rounded to nearest are noted, whichever way they go",
          "[check_notes]") {
  CHECK(Notes({"method=ist", "codec={push: bf16, pull: int8}"}) ==
        std::vector<std::string>{"codec.push bf16 and codec.pull int8: ist exchanges values, and a "
                                 "round that changes one by less than half "
                                 "of what it is rounded to changes nothing; where learning rates "
                                 "are small use f32, or qsgd, which rounds "
                                 "without bias"});
  CHECK(Notes({"method=ist", "codec={pull: f16}"}).size() == 1);
  // What is lost once is a rounding.
  CHECK(Notes({"method=ensemble", "codec={push: int8}"}).empty());
}

TEST_CASE("what waits for an exchange before the end is noted where there is none",
          "[check_notes]") {
  CHECK(Notes({"method=ensemble", "checkpoint={directory: x, every_steps: 5}",
               "train.target_accuracy=0.9"}) ==
        std::vector<std::string>{
            "checkpoint.every_steps and train.target_accuracy: without effect, as ensemble "
            "exchanges once, at the end, and servers have nothing new before"});
  CHECK(Notes({"method=ensemble", "train.target_accuracy=0.9"}).size() == 1);
}

TEST_CASE("qsgd that finds nothing large enough is noted", "[check_notes]") {
  const std::string wide = "model.layers.0.linear.units=157";
  CHECK(Notes({"method=quant_dp", "codec={}"}) ==
        std::vector<std::string>{
            "codec.push qsgd (8 bits, buckets of 512, max norm): all goes as f32, as the largest "
            "parameter has 2048 entries and those with fewer than 10000 are not rounded"});
  CHECK(Notes({"method=quant_dp", "codec={}", wide}).empty());
  CHECK(Notes({"codec={pull: qsgd}"}).size() == 1);
  CHECK(Notes({"codec={pull: qsgd}", wide}).empty());
  // Entries of a core and an explorer are one vector.
  CHECK(Notes({"method=slim_dp", "codec={push: qsgd}"}).size() == 1);
  CHECK(Notes({"method={slim_dp: {alpha: 0.9}}", "codec={push: qsgd}", wide}).empty());
}

TEST_CASE("of two shares that a push sends the one without effect is noted", "[check_notes]") {
  const auto with = [](const std::string& method, const std::string& push) {
    return Notes({"cluster.servers=2", "method=" + method, "codec={push: " + push + "}"});
  };
  const std::string sparse = "{decentralized: {density: 0.05}}";
  CHECK(with(sparse, "{threshold: {packed: true}}") ==
        std::vector<std::string>{"method.decentralized.density 0.05: without effect beside "
                                 "codec.push threshold (density 0.002, packed)"});
  CHECK(with(sparse, "f32").size() == 1);
  CHECK(with(sparse, "{threshold: {density: 0.05, packed: true}}").empty());
  CHECK(with("decentralized", "{threshold: {density: 0.05}}").empty());
  CHECK(with("decentralized", "f32").empty());
  CHECK(with("data_parallel", "{threshold: {tau: 0.1}}").empty());
  CHECK(with("data_parallel", "{threshold: {tau: 0.1, density: 0.05}}") ==
        std::vector<std::string>{"codec.push.threshold.density 0.05: without effect beside tau"});
}

TEST_CASE("a folder of the coordinator's that etcd stands in for is noted", "[check_notes]") {
  CHECK(Notes({"cluster.coordinator={directory: x, etcd: [h:1]}"}).size() == 1);
  CHECK(Notes({"cluster.coordinator={directory: x}"}).empty());
  CHECK(Notes({"cluster.coordinator={etcd: [h:1]}"}).empty());
}

}  // namespace
}  // namespace tessera

// Jobs whose workers train different layers: what is taken, and what is said of the rest.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

const char kImage[] = "model.input=[1, 8, 8]";
const char kLayers[] =
    "model.layers=[{conv2d: {channels: 4, kernel: 3}}, relu, {linear: {units: 10}}]";

TEST_CASE("layer separation has one linear worker where the job does not say", "[job_layers]") {
  const v1::Job job = Good(kJob, {kImage, kLayers, "method=layer_separation"});
  CHECK(job.method().layer_separation().linear_workers() == 1);
}

TEST_CASE("a bad job of layer separation gets its message", "[job_layers]") {
  struct Bad {
    std::vector<std::string> overrides;
    const char* errors;
  };
  const Bad jobs[] = {
      {{kImage, kLayers, "method={layer_separation: {linear_workers: 2}}"},
       "--set method: method.layer_separation.linear_workers: got 2, want at most 1 of the 2 "
       "workers (cluster.workers): each of the others sends its activations to one of them\n"},
      {{kImage, kLayers, "method={layer_separation: {linear_workers: 1}}", "cluster.workers=1"},
       "--set method: method.layer_separation.linear_workers: got 1, want at most 0 of the 1 "
       "workers (cluster.workers), which must be 2 or more: each of the others sends its "
       "activations to one of them\n"},
      {{kImage, kLayers, "method={layer_separation: {linear_workers: 0}}"},
       "--set method: method.layer_separation.linear_workers: got \"0\", want an integer in [1, "
       "1024], or auto\n"},
      {{kImage, kLayers, "method={layer_separation: {linear_workers: auto, cut: auto}}"},
       "--set method: method.layer_separation.linear_workers: got auto, which tessera run and "
       "tessera launch "
       "choose before they start a process; want what tessera plan says is best\n--set method: "
       "method.layer_separation.cut: got auto, which tessera run and tessera launch "
       "choose before they start a process; want what tessera plan says is best\n"},
      {{kImage, kLayers, "method={layer_separation: {linear_servers: 2}}", "cluster.servers=2"},
       "--set method: method.layer_separation.linear_servers: got 2, want at most 1 of the 2 "
       "servers (cluster.servers): the layers in front of the cut need one, too\n"},
      {{kImage, "model.layers=[{conv2d: {channels: 4, kernel: 3}}, relu]",
        "method=layer_separation"},
       "--set model.layers: there is no linear layer behind the convolutions, want both: the "
       "model is cut between them with method layer_separation\n"},
      {{kImage, kLayers, "method=layer_separation", "train.micro_batch=4"},
       "--set train.micro_batch: got 4, want 0 with method layer_separation: the activations of "
       "a minibatch are sent whole\n"},
  };
  for (const Bad& bad : jobs) {
    INFO(bad.overrides.back());
    CHECK(Errors(kJob, bad.overrides) == bad.errors);
  }
}

}  // namespace
}  // namespace tessera

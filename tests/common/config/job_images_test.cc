// Jobs whose models read images: what is taken, and what is said of the rest.
#include <catch2/catch.hpp>

#include <string>

#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

TEST_CASE("a bad layer of images gets its message", "[job_images]") {
  struct Bad {
    const char* from;
    const char* to;
    const char* errors;
  };
  const Bad jobs[] = {
      {"    - relu: {}", "    - conv2d: {channels: 8}",
       "x.yaml:13:7: model.layers.2.conv2d.kernel: missing, want a value or a list\n"},
      {"    - relu: {}", "    - conv2d: {channels: 8, kernel: [3, 3, 3]}",
       "x.yaml:13:37: model.layers.2.conv2d.kernel: got a list of 3, want 1 to 2 items\n"},
      {"    - relu: {}", "    - conv2d: {channels: 8, kernel: 0, stride: [1, 0]}",
       "x.yaml:13:37: model.layers.2.conv2d.kernel: got \"0\", want an integer in [1, 4096]\n"
       "x.yaml:13:52: model.layers.2.conv2d.stride.1: got \"0\", want an integer in [1, 4096]\n"},
      {"    - relu: {}", "    - max_pool: {kernel: 2, window: 2}",
       "x.yaml:13:29: model.layers.2.max_pool.window: unknown key, want kernel, stride, padding\n"},
      {"    - linear: {units: 32, bias: false}", "    - conv2d: {channels: 8, kernel: 3}",
       "x.yaml:9:10: model.input: got 1 numbers, want three, [channels, height, width]: "
       "convolutions, pooling and local_response_norm read images\n"},
      {"    - relu: {}", "    - avg_pool",
       "x.yaml:13:7: model.layers.2: avg_pool reads images, and layers.0, which is linear, makes "
       "none; want it in front of that\n"},
      {"    - relu: {}", "    - local_response_norm",
       "x.yaml:13:7: model.layers.2: local_response_norm reads images, and layers.0, which is "
       "linear, makes none; want it in front of that\n"},
      {"    - relu: {}", "    - group_norm: {groups: 5}",
       "x.yaml:13:7: model.layers.2: groups is 5 with 32 channels, want a divisor of them\n"},
      {"    - relu: {}", "    - group_norm",
       "x.yaml:13:7: model.layers.2.group_norm.groups: missing, want an integer in [1, 65536]\n"},
      {"    - relu: {}", "    - gelu: {approximate: exact}",
       "x.yaml:13:27: model.layers.2.gelu.approximate: got \"exact\", want one of none, tanh\n"},
      {"    - relu: {}", "    - leaky_relu: {slope: -0.1}",
       "x.yaml:13:27: model.layers.2.leaky_relu.slope: got \"-0.1\", want a number in [0, "
       "1e+06]\n"},
  };
  for (const Bad& bad : jobs) {
    INFO(bad.from << " -> " << bad.to);
    CHECK(Errors(JobWith(bad.from, bad.to)) == bad.errors);
  }
}

TEST_CASE("one number is for height and width, two are one for each", "[job_images]") {
  const v1::Job job =
      Good(kJob, {"model.input=[1, 8, 8]",
                  "model.layers=[{conv2d: {channels: 4, kernel: 3, padding: [1, 0]}}, avg_pool, "
                  "{linear: {units: 10}}]"});
  const v1::Conv2d& conv = job.model().layers(0).conv2d();
  CHECK(conv.kernel_size() == 1);
  CHECK(conv.padding_size() == 2);
  CHECK(conv.stride_size() == 0);
  CHECK(conv.bias());
  CHECK(job.model().layers(1).has_avg_pool());
  CHECK(job.model().layers(1).avg_pool().kernel_size() == 0);
}

TEST_CASE("batch norm over an image's places takes a single row", "[job_check][images]") {
  const std::string image = "model.input=[1, 8, 8]", one = "train.batch_size=1";
  const std::string conv = "{conv2d: {channels: 4, kernel: 3}}", linear = "{linear: {units: 10}}";
  CHECK(Errors(kJob, {image, one, "model.layers=[" + conv + ", batch_norm, " + linear + "]"})
            .empty());
  const std::string flat = Errors(
      kJob, {image, one, "model.layers=[" + conv + ", avg_pool, batch_norm, " + linear + "]"});
  CHECK(flat.find("train.batch_size: got 1, want at least 2: batch_norm makes every") !=
        std::string::npos);
}

TEST_CASE("a layer that images do not fit is shown where it is", "[job_images]") {
  const std::string text = JobWith("  input: [64]", "  input: [1, 8, 8]");
  const auto errors = [&](const std::string& layers) {
    return Errors(text, {"model.layers=[" + layers + ", {linear: {units: 10}}]"});
  };
  CHECK(errors("{conv2d: {channels: 4, kernel: 9}}")
            .find("model.layers.0: kernel is 9 x 9, want at most 8 x 8") != std::string::npos);
  CHECK(errors("{conv2d: {channels: 4, kernel: 3}}, {max_pool: {kernel: 3, padding: 2}}")
            .find("model.layers.1: padding is 2 x 2, want at most 1 x 1") != std::string::npos);
}

TEST_CASE("a window that would take all memory is refused", "[job_images]") {
  const std::string text = JobWith("  input: [64]", "  input: [32768, 1, 1]");
  const std::string hidden = "{linear: {units: 8}}, relu, {linear: {units: 10}}]";
  const std::string errors = Errors(
      text, {"method={ist: {local_steps: 5}}",
             "model.layers=[{conv2d: {channels: 1, kernel: 4096, padding: 2048}}, " + hidden});
  CHECK(errors.find("model.layers.0: kernel is 4096 x 4096 on 32768 channels, want at most "
                    "16777216 values") != std::string::npos);
}

TEST_CASE("subnets are cut from the linear layers behind convolutions", "[job_images][subnet]") {
  const std::string image = "model.input=[1, 8, 8]", ist = "method={ist: {local_steps: 5}}";
  const std::string conv = "model.layers=[{conv2d: {channels: 4, kernel: 3}}, relu, ";
  CHECK(Errors(kJob, {image, ist, conv + "{linear: {units: 8}}, relu, {linear: {units: 10}}]"})
            .empty());
  CHECK(Errors(kJob, {image, ist, conv + "{linear: {units: 10}}]"})
            .find("got no hidden units to deal out, want at least two linear layers") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera

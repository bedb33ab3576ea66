// Jobs whose rows are pictures, are changed at random, or stay on disk: what is taken, and what is said of the rest.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

using Overrides = std::vector<std::string>;

const std::string kInput = "model.input=[3, 8, 8]";

// A job whose rows are pictures in folders.
const std::string& Folders() {
  static const std::string text = [] {
    std::string job = JobWith("format: idx", "format: images");
    job = absl::StrReplaceAll(job, {{"{features: a.gz, labels: b.gz}", "{features: train}"},
                                    {"{features: [c.gz], labels: d.gz}", "{features: [val]}"},
                                    {"input: [64]", "input: [3, 8, 8]"}});
    return job;
  }();
  return text;
}

void CheckRefused(const std::string& text, const Overrides& overrides, const std::string& error) {
  const std::string errors = Errors(text, overrides);
  INFO(errors);
  CHECK(errors.find(error) != std::string::npos);
}

TEST_CASE("a mean and a stddev are one number, or one for each channel", "[job_check][data]") {
  const std::string three = "data.normalize={mean: [0.1, 0.2, 0.3], stddev: [1, 2, 3]}";
  const v1::Job job = Good(kJob, {kInput, three});
  CHECK(job.data().normalize().mean_size() == 3);
  CHECK(job.data().normalize().stddev(2) == 3);
  Good(kJob, {kInput, "data.normalize={mean: [0.1, 0.2, 0.3], stddev: 2}"});
  CheckRefused(kJob, {three},
               "data.normalize.mean: got 3 numbers, want one: model.input [64] has no channels");
  CheckRefused(kJob, {kInput, "data.normalize={stddev: [1, 2]}"},
               "data.normalize.stddev: got 2 numbers, want one, or 3, one for each channel of "
               "model.input [3, 8, 8]");
  CheckRefused(kJob, {kInput, "data.normalize={mean: [0, 0, 0], per_feature: true}"},
               "data.normalize.per_feature: got true beside mean or stddev");
}

TEST_CASE("augmentation is for dense rows that are images", "[job_check][data]") {
  const std::string flip = "data.augment.flip=horizontal";
  Good(kJob, {kInput, flip, "data.augment.crop.padding=4"});
  Good(kJob, {kInput, "data.augment.resized_crop={size: 8, scale: [0.5, 1], ratio: [1, 1]}"});
  CheckRefused(kJob, {flip},
               "data.augment: got a section, want none: model.input [64] is no image");
  CheckRefused(JobWith("format: idx", "format: libsvm"), {kInput, flip},
               "data.augment: got a section, want none with data.format libsvm");
  CheckRefused(kJob, {kInput, "data.augment={crop: {padding: 1}, resized_crop: {size: 8}}"},
               "data.augment.crop: got a section beside resized_crop, want one or the other");
  CheckRefused(kJob, {kInput, "data.augment.resized_crop.size=9"},
               "data.augment.resized_crop.size: got 9, want the height and width of model.input");
  CheckRefused(kJob, {kInput, "data.augment.resized_crop={size: 8, scale: [1, 0.5]}"},
               "data.augment.resized_crop.scale: got 1 and 0.5, want the least first");
  CheckRefused(kJob, {kInput, "data.augment.resized_crop={ratio: [1, 2]}"},
               "data.augment.resized_crop.size: missing, want the size beside scale or ratio");
}

TEST_CASE("what folders of pictures are made into is model.input", "[job_check][data]") {
  Good(Folders(), {"data.resize=10", "data.crop=8", "data.threads=4"});
  Good(Folders(), {"data.resize=8", "model.input=[1, 8, 12]"});
  Good(Folders(), {"data.crop=8", "data.memory=1GiB"});
  Good(Folders());
  CheckRefused(Folders(), {"model.input=[192]"},
               "model.input: got [192], want [3, height, width], or [1, height, width] for grey");
  CheckRefused(Folders(), {"model.input=[4, 8, 8]"}, "model.input: got [4, 8, 8], want [3, ");
  CheckRefused(Folders(), {"data.crop=9"},
               "data.crop: got 9, want the height and width of model.input [3, 8, 8]");
  CheckRefused(Folders(), {"data.crop=8", "data.resize=7"},
               "data.resize: got 7, want at least data.crop, which is 8");
  CheckRefused(Folders(), {"data.resize=9"}, "data.resize: got 9, want 8, the shorter side");
  CheckRefused(Folders(), {"data.normalize.per_feature=true"},
               "data.normalize.per_feature: got true, want mean and stddev");
  CheckRefused(Folders(), {"data.train.labels=x"}, "images files carry their labels");
  CheckRefused(kJob, {kInput, "data.resize=8"},
               "data.resize: got 8, want no such key with data.format idx");
  CheckRefused(kJob, {kInput, "data.crop=8"},
               "data.crop: got 8, want no such key with data.format idx");
}

TEST_CASE("rows stay on disk only in formats whose rows can be read one by one",
          "[job_check][data]") {
  Good(kJob, {"data.memory=1MiB", "data.threads=3"});
  CheckRefused(absl::StrReplaceAll(JobWith("format: idx", "format: csv"),
                                   {{", labels: b.gz", ""}, {", labels: d.gz", ""}}),
               {"data.memory=1MiB"},
               "data.memory: got 1048576, want no such key with data.format csv: its rows are "
               "always held");
  CheckRefused(kJob, {"data.threads=3"}, "data.threads: got 3, want data.memory beside it");
}

}  // namespace
}  // namespace tessera

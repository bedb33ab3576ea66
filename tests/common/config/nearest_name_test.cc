#include "common/config/nearest_name.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

const std::vector<std::string> kCheckpoint = {"directory", "every_steps", "keep"};
const std::vector<std::string> kTrain = {"batch_size", "epochs", "steps", "optimizer"};

TEST_CASE("an abbreviation is near to the name it begins", "[nearest_name]") {
  CHECK(NearestName("evry", kCheckpoint) == "every_steps");
  CHECK(NearestName("dir", kCheckpoint) == "directory");
  CHECK(NearestName("opt", kTrain) == "optimizer");
}

TEST_CASE("a swap, a slip, a missing or a second letter is one edit", "[nearest_name]") {
  CHECK(NearestName("epohcs", kTrain) == "epochs");
  CHECK(NearestName("epocha", kTrain) == "epochs");
  CHECK(NearestName("epchs", kTrain) == "epochs");
  CHECK(NearestName("stteps", kTrain) == "steps");
}

TEST_CASE("case and dashes are no edits", "[nearest_name]") {
  CHECK(NearestName("Batch-Size", kTrain) == "batch_size");
  CHECK(NearestName("batchSize", kTrain) == "batch_size");
}

TEST_CASE("the nearer of two near names wins", "[nearest_name]") {
  CHECK(NearestName("f33", {"bf16", "f16", "f32"}) == "f32");
  CHECK(NearestName("steps", {"step", "steps_more", "steps"}) == "steps");
}

TEST_CASE("a name far from all has no neighbour", "[nearest_name]") {
  CHECK_FALSE(NearestName("wibble", kTrain));
  CHECK_FALSE(NearestName("x", kTrain));
  CHECK_FALSE(NearestName("", kTrain));
  CHECK_FALSE(NearestName("steps", {}));
  CHECK_FALSE(NearestName(std::string(1000, 's'), kTrain));
  CHECK(DidYouMean("wibble", kTrain).empty());
  CHECK(DidYouMean("step", kTrain) == "; did you mean \"steps\"?");
}

}  // namespace
}  // namespace tessera

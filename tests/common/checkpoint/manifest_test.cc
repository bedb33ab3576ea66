// The manifest: what is written is read, and nothing else is.
#include "common/checkpoint/manifest.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

Manifest Full() {
  Manifest manifest = ManifestOf(2);
  manifest.files = {{"shard-0-of-2.safetensors", 10, 0xffffffffffffffffu},
                    {"worker-1.safetensors", 5, 0},
                    {"shard-1-of-2.safetensors", 12, 7}};
  return manifest;
}

std::string ErrorOf(const std::string& text) {
  const auto parsed = ParseManifest("m.json", text);
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

TEST_CASE("a manifest reads back to the same text", "[checkpoint]") {
  const std::string text = FormatManifest(Full());
  const auto parsed = ParseManifest("m.json", text);
  REQUIRE(parsed.ok());
  CHECK(FormatManifest(*parsed) == text);
  CHECK(parsed->files[0].sum == 0xffffffffffffffffu);
  CHECK(parsed->layout_hash == 0xfedcba9876543210u);
  CHECK(parsed->parameters[1].is_vector);
  CHECK(parsed->parameters[1].export_factor == 0.5);
  CHECK(parsed->shards[1].pushes == 41);
  CHECK(parsed->shards[1].staleness == std::vector<uint64_t>{37, 3});
  CHECK(parsed->members[1].rank == 1);
  CHECK(parsed->coordinator == R"({"history":[1,2]})");
}

TEST_CASE("what a convolution's columns are is kept, and shown where it is", "[checkpoint]") {
  Manifest manifest = Full();
  CheckpointParameter& weight = manifest.parameters[0];
  CHECK(weight.Shape(7) == std::vector<int64_t>{7, weight.columns});
  weight.columns = 18;
  weight.columns_are = {2, 3, 3};
  CHECK(weight.Shape(7) == std::vector<int64_t>{7, 2, 3, 3});
  const auto parsed = ParseManifest("m.json", FormatManifest(manifest));
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  CHECK(parsed->parameters[0].columns_are == weight.columns_are);
  CHECK(FormatManifest(*parsed) == FormatManifest(manifest));
  using Extents = std::vector<int64_t>;
  for (const Extents& wrong :
       {Extents{2, 3, 4}, Extents{2, 3}, Extents{0, 18}, Extents{-3, -6}, Extents{18, 0},
        Extents{INT64_MAX, 2}, Extents{18, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
    weight.columns_are = wrong;
    CHECK_THAT(ErrorOf(FormatManifest(manifest)),
               Catch::Contains("columns_are is not what the columns are made of"));
  }
}

TEST_CASE("a tensor without extents is a vector of one row, and shown as it is", "[checkpoint]") {
  Manifest manifest = Full();
  CheckpointParameter& scale = manifest.parameters[1];
  scale.rows = 1;
  scale.is_vector = scale.is_scalar = true;
  CHECK(scale.WholeShape().empty());
  CHECK(scale.Shape(1) == std::vector<int64_t>{1});
  const auto parsed = ParseManifest("m.json", FormatManifest(manifest));
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  CHECK(parsed->parameters[1].is_scalar);
  CHECK_FALSE(parsed->parameters[0].is_scalar);
  scale.rows = 2;
  CHECK_THAT(ErrorOf(FormatManifest(manifest)),
             Catch::Contains("is_scalar wants a vector of 1 row"));
}

TEST_CASE("the servers that share a parameter are kept, and are among those there are",
          "[checkpoint]") {
  Manifest manifest = Full();
  REQUIRE(manifest.shards.size() == 2);
  manifest.parameters[0].owners = {0, 1};
  manifest.parameters[1].owners = {1, 2};
  const auto parsed = ParseManifest("m.json", FormatManifest(manifest));
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  CHECK(parsed->parameters[0].OwnersOf(2) == Owners{0, 1});
  CHECK(parsed->parameters[1].OwnersOf(2) == Owners{1, 2});
  CHECK(Full().parameters[0].OwnersOf(2) == Owners{0, 2});
  CHECK(FormatManifest(*parsed) == FormatManifest(manifest));
  for (const Owners& wrong : {Owners{1, 1}, Owners{2, 1}, Owners{-1, 1}, Owners{0, 100000}}) {
    manifest.parameters[1].owners = wrong;
    CHECK_THAT(ErrorOf(FormatManifest(manifest)),
               Catch::Contains("parameters[1]: servers is no range of servers"));
  }
  manifest.parameters[1].owners = {1, 3};
  CHECK_THAT(ErrorOf(FormatManifest(manifest)),
             Catch::Contains("is on servers before 3, but there are 2"));
}

TEST_CASE("every field of a manifest is wanted, and no other", "[checkpoint]") {
  const nlohmann::json whole = nlohmann::json::parse(FormatManifest(Full()));
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json less = whole;
    less.erase(key);
    CHECK_THAT(ErrorOf(less.dump()), Catch::Contains("." + key + ": is missing"));
    nlohmann::json other = whole;
    other[key] = nullptr;
    CHECK_FALSE(ErrorOf(other.dump()).empty());
    if (!value.is_array() || value.empty()) continue;
    for (const auto& [field, unused] : value[0].items()) {
      nlohmann::json inner = whole;
      inner[key][0].erase(field);
      CHECK_THAT(ErrorOf(inner.dump()), Catch::Contains("[0]." + field + ": is missing"));
    }
  }
  std::string text = FormatManifest(Full());
  text.replace(text.find("\"step\": 400"), 11, "\"step\": 401");
  CHECK(
      ErrorOf(text) ==
      "\"m.json\": xxh3 is not the sum of the text; its bytes are not the ones that were written");
  nlohmann::json more = whole;
  more["zeal"] = 1;
  CHECK(ErrorOf(more.dump()) == "\"m.json\".zeal: unknown key");
}

TEST_CASE("a manifest that contradicts itself is refused", "[checkpoint]") {
  const auto broken = [](auto change) {
    Manifest manifest = Full();
    change(&manifest);
    return ErrorOf(FormatManifest(manifest));
  };
  CHECK(broken([](Manifest* m) { m->files.pop_back(); }) ==
        "\"m.json\".files: \"shard-1-of-2.safetensors\" is missing");
  CHECK(broken([](Manifest* m) { m->files[1].name = "../../passwd"; }) ==
        "\"m.json\".files: \"../../passwd\" is no file of these shards and members, or is there "
        "twice");
  CHECK_FALSE(broken([](Manifest* m) { m->files[1].name = "worker-7.safetensors"; }).empty());
  CHECK_FALSE(broken([](Manifest* m) { m->files.push_back(m->files[0]); }).empty());
  CHECK(broken([](Manifest* m) { m->shards.clear(); }) ==
        "\"m.json\": shards is empty, want at least one");
  CHECK_FALSE(broken([](Manifest* m) { m->shards.resize(257); }).empty());
  CHECK_FALSE(broken([](Manifest* m) { m->states = 17; }).empty());
  CHECK_FALSE(broken([](Manifest* m) { m->model_parameters = 4; }).empty());
  CHECK_FALSE(broken([](Manifest* m) { m->parameters[0].rows = int64_t{1} << 62; }).empty());
  CHECK_FALSE(broken([](Manifest* m) { m->parameters[1].name = "layers.0.weight"; }).empty());
  CHECK(broken([](Manifest* m) { m->members[0].rank = 65535; }) ==
        "\"m.json\".members[0].rank: is 65535, want below 65535");
  CHECK(broken([](Manifest* m) { m->shards[1].staleness[0] = ~0ull; }) ==
        "\"m.json\".shards[1]: staleness: has 18446744073709551615, want counts below "
        "72057594037927936");
  CHECK(ErrorOf(R"({"tessera_checkpoint": 2})") ==
        "\"m.json\": tessera_checkpoint is 2, want 1; another version of the program wrote it");
}

// A job that went on from there would come to the end of its numbers, or past it.
TEST_CASE("numbers that no job reaches are refused, by field", "[checkpoint]") {
  const uint64_t kStepEnd = uint64_t{1} << 40, kNumberEnd = uint64_t{1} << 39,
                 kCountEnd = uint64_t{1} << 56;
  struct Number {
    const char* field;
    uint64_t end;
    uint64_t& (*of)(Manifest*);
  };
  const Number kNumbers[] = {
      {".step", kStepEnd, [](Manifest* m) -> uint64_t& { return m->step; }},
      {".exchange", kNumberEnd, [](Manifest* m) -> uint64_t& { return m->exchange; }},
      {".generation", kNumberEnd, [](Manifest* m) -> uint64_t& { return m->generation; }},
      {".members[1].member", kNumberEnd,
       [](Manifest* m) -> uint64_t& { return m->members[1].member; }},
      {".members[1].exchange", kNumberEnd,
       [](Manifest* m) -> uint64_t& { return m->members[1].exchange; }},
      {".members[1].step", kStepEnd, [](Manifest* m) -> uint64_t& { return m->members[1].step; }},
      {".shards[0].version", kCountEnd,
       [](Manifest* m) -> uint64_t& { return m->shards[0].version; }},
      {".shards[0].examples", kCountEnd,
       [](Manifest* m) -> uint64_t& { return m->shards[0].examples; }},
      {".shards[0].pushes", kCountEnd,
       [](Manifest* m) -> uint64_t& { return m->shards[0].pushes; }},
  };
  for (const Number& number : kNumbers) {
    for (const uint64_t value : {number.end - 1, number.end, ~uint64_t{0}}) {
      Manifest manifest = Full();
      number.of(&manifest) = value;
      const std::string want = value < number.end
                                   ? ""
                                   : "\"m.json\"" + std::string(number.field) + ": is " +
                                         std::to_string(value) + ", want below " +
                                         std::to_string(number.end);
      CHECK(ErrorOf(FormatManifest(manifest)) == want);
    }
  }
}

TEST_CASE("folders are named after steps so that names sort by age", "[checkpoint]") {
  CHECK(StepFolderName(400) == "step-000000000400");
  CHECK(StepFolderName(9) < StepFolderName(10));
  uint64_t step = 1;
  CHECK(ParseStepFolderName("step-000000000400", &step));
  CHECK(step == 400);
  CHECK(ParseStepFolderName(StepFolderName(~uint64_t{0}), &step));
  for (const char* name :
       {"step-400", "step-", "step-00000000040x", "step--00000000001", "partial-step-000000000400",
        "step-000000000400 ", "step-+00000000400"}) {
    CHECK_FALSE(ParseStepFolderName(name, &step));
  }
}

}  // namespace
}  // namespace tessera

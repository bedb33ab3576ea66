// What of a worker's optimizer a job takes up that has another one.
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/common/checkpoint/saved_model.h"
#include "worker/checkpoint/worker_saver.h"

namespace tessera {
namespace {

using Arrays = std::vector<std::pair<std::string, std::vector<float>>>;

// A checkpoint of one worker whose job had this optimizer, and its file these arrays.
std::string SavedWith(const std::string& optimizer, const Arrays& arrays) {
  const std::string folder = EmptyFolder();
  Manifest manifest = ManifestOf(1);
  manifest.job_text = "tessera job 1\ntrain.optimizer=" + optimizer + "\n";
  manifest.members = {{5, 0, 20, 400}};
  REQUIRE(SaveShards(folder, &manifest).ok());
  WorkerCopy copy;
  copy.arrays = arrays;
  const absl::StatusOr<CheckpointFile> file = WriteWorkerFile(folder, Rank(0), copy);
  REQUIRE(file.ok());
  manifest.files.push_back(*file);
  WriteManifest(folder, manifest);
  return folder;
}

absl::StatusOr<std::optional<WorkerCursor>> Load(const std::string& folder,
                                                 const PrivateState& state,
                                                 PayloadKind payload = PayloadKind::kGradient) {
  WorkerSaver::Options options;
  options.restored = folder;
  options.tell = [](v1::SavedRequest) { return v1::SavedReply(); };
  options.payload = payload;
  WorkerSaver saver(std::move(options));
  return saver.Load(state);
}

struct Squares {
  bool taken_up = false;
  std::vector<float> mean = {0}, squares = {0};
};

// Restored by a worker that keeps squares, and a mean too if it is Adam's.
Squares Restore(const std::string& folder, bool is_adam) {
  Squares now;
  PrivateState view;
  if (is_adam) view.arrays.push_back({"state.mean.w", absl::MakeSpan(now.mean)});
  view.arrays.push_back({"state.squares.w", absl::MakeSpan(now.squares)});
  const auto cursor = Load(folder, view);
  REQUIRE(cursor.ok());
  now.taken_up = cursor->has_value();
  return now;
}

TEST_CASE("a state of another optimizer is dropped, of however many arrays", "[worker_saver]") {
  const bool has_names = GENERATE(true, false);
  CAPTURE(has_names);
  const std::string mean = has_names ? "state.mean.w" : "state.0.w";
  const std::string squares = has_names ? "state.squares.w" : "state.1.w";
  const std::string adam = SavedWith("adam", {{mean, {-1}}, {squares, {4}}});
  const std::string momentum = SavedWith("sgd\ntrain.optimizer.sgd.momentum=0.9",
                                         {{has_names ? "state.momentum.w" : "state.0.w", {-1}}});
  for (const std::string& folder : {adam, momentum}) {
    const Squares adagrads = Restore(folder, /*is_adam=*/false);
    CHECK_FALSE(adagrads.taken_up);
    CHECK(adagrads.squares[0] == 0);
  }
  // AdamW's are the same as Adam's.
  const Squares now = Restore(adam, /*is_adam=*/true);
  CHECK(now.taken_up);
  CHECK(now.mean[0] == -1);
  CHECK(now.squares[0] == 4);
  CHECK_FALSE(Restore(momentum, /*is_adam=*/true).taken_up);
}

TEST_CASE("whoever keeps no state takes up the rest of the file", "[worker_saver]") {
  const std::string folder = SavedWith("adam", {{"state.mean.w", {1}}, {"residual.0", {3}}});
  std::vector<float> held = {0};
  const auto cursor = Load(folder, {{{"residual.0", absl::MakeSpan(held)}}, {}, nullptr});
  REQUIRE(cursor.ok());
  CHECK(cursor->has_value());
  CHECK(held[0] == 3);
}

TEST_CASE("another optimizer leaves what was held back, and another codec the optimizer's state",
          "[worker_saver]") {
  const std::string momentum = "sgd\ntrain.optimizer.sgd.momentum=0.9";
  const std::string both = SavedWith(momentum, {{"state.momentum.w", {-1}}, {"residual.0", {3}}});
  std::vector<float> mean = {0}, held = {0}, velocity = {0};
  const auto as_adam =
      Load(both, {{{"state.mean.w", absl::MakeSpan(mean)}, {"residual.0", absl::MakeSpan(held)}},
                  {},
                  nullptr});
  REQUIRE(as_adam.ok());
  CHECK_FALSE(as_adam->has_value());
  CHECK(mean[0] == 0);
  CHECK(held[0] == 3);

  const std::string exact = SavedWith(momentum, {{"state.momentum.w", {-1}}});
  const std::string folder = GENERATE_COPY(both, exact);
  // One codec held back nothing, the other holds back nothing.
  PrivateState view{{{"state.momentum.w", absl::MakeSpan(velocity)}}, {}, nullptr};
  held = {5};
  if (folder == exact) view.arrays.push_back({"residual.0", absl::MakeSpan(held)});
  const auto as_before = Load(folder, view);
  REQUIRE(as_before.ok());
  CHECK(as_before->has_value());
  CHECK(velocity[0] == -1);
  CHECK(held[0] == (folder == exact ? 0 : 5));
}

TEST_CASE("what was held back of gradients is no change of parameters", "[worker_saver]") {
  const std::string folder = SavedWith("sgd\nmethod=data_parallel", {{"residual.0", {3}}});
  for (const PayloadKind payload : {PayloadKind::kGradient, PayloadKind::kDelta}) {
    std::vector<float> held = {0};
    const auto cursor =
        Load(folder, {{{"residual.0", absl::MakeSpan(held)}}, {}, nullptr}, payload);
    REQUIRE(cursor.ok());
    const bool is_same = payload == PayloadKind::kGradient;
    CHECK(cursor->has_value() == is_same);
    CHECK(held[0] == (is_same ? 3 : 0));
  }
}

}  // namespace
}  // namespace tessera

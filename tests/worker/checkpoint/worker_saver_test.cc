#include "worker/checkpoint/worker_saver.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/layout/layer_cut.h"
#include "common/method/recipe.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

// What the coordinator is told, and what it answers to who asks for a last one.
struct Coordinator {
  absl::Mutex mutex;
  std::vector<v1::SavedRequest> told;
  std::vector<v1::SavedReply> answers;

  std::function<absl::StatusOr<v1::SavedReply>(v1::SavedRequest)> Tell() {
    return [this](v1::SavedRequest request) -> absl::StatusOr<v1::SavedReply> {
      absl::MutexLock lock(&mutex);
      v1::SavedReply reply;
      if (request.number() == 0 && !answers.empty()) {
        reply = answers.front();
        answers.erase(answers.begin());
      }
      told.push_back(std::move(request));
      return reply;
    };
  }
};

struct State {
  std::vector<float> a = {1, 2, 3}, b = {4};
  uint64_t local_steps = 17;
  PrivateState view() {
    return {{{"state.0.w", absl::MakeSpan(a)}, {"state.1.w", absl::MakeSpan(b)}}, {}, &local_steps};
  }
};

WorkerCursor Cursor() {
  WorkerCursor cursor;
  cursor.progress.step = 60;
  cursor.progress.exchange = 12;
  cursor.progress.epoch = 2;
  cursor.progress.examples = 1920;
  cursor.progress.train_loss = 0.1;
  cursor.loss_sum = 1.0 / 3.0;
  cursor.loss_count = 20;
  return cursor;
}

TEST_CASE("a worker's file brings back what was in it", "[worker_saver]") {
  const std::string folder = EmptyFolder();
  WorkerCopy copy;
  copy.cursor = Cursor();
  copy.cursor.evaluation_due = GENERATE(true, false);
  copy.local_steps = 17;
  copy.arrays = {{"state.0.w", {1, 2, 3}}, {"state.1.w", {4}}};
  const absl::StatusOr<CheckpointFile> file = WriteWorkerFile(folder, Rank(3), copy);
  REQUIRE(file.ok());
  CHECK(file->name == "worker-3.safetensors");
  State state;
  state.a = {0, 0, 0};
  state.b = {0};
  state.local_steps = 0;
  const std::string path = folder + "/" + WrittenName(*file);
  const absl::StatusOr<WorkerCursor> cursor = ReadWorkerFile(path, state.view());
  REQUIRE(cursor.ok());
  CHECK(state.a == std::vector<float>{1, 2, 3});
  CHECK(state.b == std::vector<float>{4});
  CHECK(state.local_steps == 17);
  CHECK(cursor->loss_sum == 1.0 / 3.0);
  CHECK(cursor->progress.step == 60);
  CHECK(cursor->progress.examples == 1920);
  CHECK(cursor->evaluation_due == copy.cursor.evaluation_due);

  SECTION("an array of another size is refused") {
    state.b = {0, 0};
    CHECK(absl::IsInvalidArgument(ReadWorkerFile(path, state.view()).status()));
  }
  SECTION("a file that does not say whether an evaluation was due leaves it to the job") {
    std::string text = TextOf(path);
    const size_t key = text.find("evaluation_due");
    REQUIRE(key != std::string::npos);
    WriteText(path, text.replace(key, 10, "EVALUATION"));
    const absl::StatusOr<WorkerCursor> older = ReadWorkerFile(path, state.view());
    REQUIRE(older.ok());
    CHECK(older->evaluation_due);
  }
  SECTION("a file that is cut off is refused") {
    REQUIRE(truncate(path.c_str(), 100) == 0);
    CHECK_FALSE(ReadWorkerFile(path, state.view()).ok());
  }
}

TEST_CASE("whoever had the rank writes beside its successor, before it or after",
          "[worker_saver]") {
  const std::string folder = EmptyFolder();
  WorkerCopy copy;
  copy.cursor = Cursor();
  std::vector<CheckpointFile> files;
  for (const float value : {1.0f, 2.0f}) {
    copy.arrays = {{"state.0.w", {value}}};
    const absl::StatusOr<CheckpointFile> file = WriteWorkerFile(folder, Rank(3), copy);
    REQUIRE(file.ok());
    files.push_back(*file);
  }
  for (const float value : {1.0f, 2.0f}) {
    std::vector<float> read = {0};
    const CheckpointFile& file = files[value == 1 ? 0 : 1];
    CHECK(file.name == "worker-3.safetensors");
    REQUIRE(ReadWorkerFile(folder + "/" + WrittenName(file),
                           {{{"state.0.w", absl::MakeSpan(read)}}, {}, nullptr})
                .ok());
    CHECK(read[0] == value);
  }
}

TEST_CASE("the state is written as it was when it was saved", "[worker_saver]") {
  const std::string folder = EmptyFolder();
  REQUIRE(mkdir((folder + "/" + PartialFolderName(60)).c_str(), 0777) == 0);
  Coordinator coordinator;
  State state;
  {
    WorkerSaver saver({PartsIn(folder), "", Rank(1), 2, coordinator.Tell()});
    saver.Save(5, 60, Cursor(), state.view());
    state.a = {9, 9, 9};
  }
  REQUIRE(coordinator.told.size() == 1);
  const v1::SavedRequest& told = coordinator.told[0];
  CHECK(told.error().empty());
  CHECK(told.number() == 5);
  CHECK(told.progress().step() == 60);
  CHECK(told.file().name() == "worker-1.safetensors");
  const CheckpointFile file = {told.file().name(), 0, told.file().sum()};
  const std::string path = folder + "/" + PartialFolderName(60) + "/" + WrittenName(file);
  REQUIRE(ReadWorkerFile(path, state.view()).ok());
  CHECK(state.a == std::vector<float>{1, 2, 3});
}

TEST_CASE("the coordinator is told why a file is not there", "[worker_saver]") {
  Coordinator coordinator;
  State state;
  const std::string folder = GENERATE(std::string(), std::string("/nowhere"));
  {
    WorkerSaver({PartsIn(folder), "", Rank(0), 1, coordinator.Tell()})
        .Save(5, 60, Cursor(), state.view());
  }
  REQUIRE(coordinator.told.size() == 1);
  CHECK_FALSE(coordinator.told[0].error().empty());
}

TEST_CASE("at the end a worker waits, writes once, and goes", "[worker_saver]") {
  const std::string folder = EmptyFolder();
  REQUIRE(mkdir((folder + "/" + PartialFolderName(9)).c_str(), 0777) == 0);
  Coordinator coordinator;
  v1::SavedReply wait, mark;
  wait.set_wait(true);
  mark.mutable_mark()->set_number(4);
  mark.mutable_mark()->set_folder_step(9);
  coordinator.answers = {wait, mark, mark, wait, {}};
  State state;
  {
    WorkerSaver saver({PartsIn(folder), "", Rank(0), 1, coordinator.Tell()});
    saver.SaveLast(Cursor(), state.view());
  }
  int written = 0;
  for (const v1::SavedRequest& told : coordinator.told) written += told.number() == 4;
  CHECK(written == 1);
  CHECK(coordinator.answers.empty());
}

TEST_CASE("a worker at its end writes again where the last checkpoint is tried again",
          "[worker_saver]") {
  const std::string folder = EmptyFolder();
  Coordinator coordinator;
  v1::SavedReply wait, first, second;
  wait.set_wait(true);
  first.mutable_mark()->set_number(4);
  first.mutable_mark()->set_folder_step(9);  // It is not there.
  second.mutable_mark()->set_number(5);
  second.mutable_mark()->set_folder_step(10);
  REQUIRE(mkdir((folder + "/" + PartialFolderName(10)).c_str(), 0777) == 0);
  coordinator.answers = {first, wait, wait, second, second, {}};
  State state;
  {
    WorkerSaver saver({PartsIn(folder), "", Rank(0), 1, coordinator.Tell()});
    saver.SaveLast(Cursor(), state.view());
  }
  std::vector<v1::SavedRequest> written;
  for (const v1::SavedRequest& told : coordinator.told) {
    if (told.number() != 0) written.push_back(told);
  }
  REQUIRE(written.size() == 2);
  CHECK(written[0].number() == 4);
  CHECK_FALSE(written[0].error().empty());
  CHECK(written[1].number() == 5);
  CHECK(written[1].error().empty());
  CHECK(written[1].progress().step() == 60);
  CHECK(coordinator.answers.empty());
}

using Arrays = std::vector<std::pair<std::string, std::vector<float>>>;

// A checkpoint of workers of these ranks, rank r of which had arrays_of(r). Their job had four.
std::string SavedByRanks(const std::vector<uint32_t>& ranks,
                         const std::function<Arrays(uint32_t)>& arrays_of) {
  const std::string folder = EmptyFolder();
  Manifest manifest = ManifestOf(1);
  manifest.job_text = "tessera job 1\ncluster.workers=4\n";
  manifest.members.clear();
  for (const uint32_t rank : ranks) manifest.members.push_back({rank + 5, rank, 20, 400});
  REQUIRE(SaveShards(folder, &manifest).ok());
  for (const uint32_t rank : ranks) {
    WorkerCopy copy;
    copy.cursor = Cursor();
    copy.arrays = arrays_of(rank);
    const absl::StatusOr<CheckpointFile> file = WriteWorkerFile(folder, Rank(rank), copy);
    REQUIRE(file.ok());
    manifest.files.push_back(*file);
  }
  WriteManifest(folder, manifest);
  return folder;
}

std::string SavedBy(uint32_t workers, const std::function<Arrays(uint32_t)>& arrays_of) {
  std::vector<uint32_t> ranks(workers);
  std::iota(ranks.begin(), ranks.end(), 0);
  return SavedByRanks(ranks, arrays_of);
}

// Rank r of three held back {r + 1, 10 (r + 1)} and had learned 10 (r + 1).
std::string SavedByThree() {
  return SavedBy(3, [](uint32_t rank) -> Arrays {
    const float held = static_cast<float>(rank + 1);
    return {{"state.0.w", {7}}, {"residual.0", {held, 10 * held}}, {"codec", {10 * held}}};
  });
}

TEST_CASE("what was held back is dealt to other workers, and the rest is dropped",
          "[worker_saver]") {
  const std::string folder = SavedByThree();
  Coordinator coordinator;
  const int64_t workers = GENERATE(1, 2, 3, 5);
  const auto weight = GENERATE(PushWeight::kOfMean, PushWeight::kOfRanks, PushWeight::kWhole);
  CAPTURE(workers, static_cast<int>(weight));
  std::vector<float> sum(2);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    std::vector<float> state = {0}, held = {0, 0};
    const PrivateState view{
        {{"state.0.w", absl::MakeSpan(state)}, {"residual.0", absl::MakeSpan(held)}}, {}, nullptr};
    WorkerSaver saver(
        {nullptr, folder, Rank(rank), workers, coordinator.Tell(), /*goes_back=*/false, weight});
    const auto cursor = saver.Load(view);
    REQUIRE(cursor.ok());
    CHECK(cursor->has_value() == (workers == 3));
    CHECK(state[0] == (workers == 3 ? 7 : 0));
    for (int i = 0; i < 2; ++i) sum[i] += held[i];
  }
  // As all pushes together, a mean over the three who pushed it, or a quarter of all pushes would have had it before.
  const float share = static_cast<float>(workers) / (weight == PushWeight::kOfMean ? 3 : 4);
  const float total = weight == PushWeight::kWhole ? 6 : 6 * share;
  CHECK(sum[0] == Approx(total));
  CHECK(sum[1] == Approx(10 * total));
}

TEST_CASE("as many workers of other ranks take up what all held back, too", "[worker_saver]") {
  const std::string folder = SavedByRanks({0, 2, 3}, [](uint32_t rank) -> Arrays {
    return {{"state.0.w", {7}}, {"residual.0", {static_cast<float>(rank + 1)}}};
  });
  Coordinator coordinator;
  float sum = 0;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    std::vector<float> state = {0}, held = {0};
    const PrivateState view{
        {{"state.0.w", absl::MakeSpan(state)}, {"residual.0", absl::MakeSpan(held)}}, {}, nullptr};
    WorkerSaver saver({nullptr, folder, Rank(rank), 3, coordinator.Tell()});
    const auto cursor = saver.Load(view);
    REQUIRE(cursor.ok());
    CHECK_FALSE(cursor->has_value());
    CHECK(state[0] == 0);
    sum += held[0];
  }
  CHECK(sum == 1 + 3 + 4);
}

TEST_CASE("how many sites had trained what is there is taken up by whoever goes on",
          "[worker_saver]") {
  const std::string folder = EmptyFolder();
  Manifest manifest = ManifestOf(1);
  const int64_t was = GENERATE(as<int64_t>(), 1, 3, 49);
  for (CheckpointParameter& parameter : manifest.parameters) parameter.export_factor = 1;
  manifest.parameters[0].export_factor = 1.0 / static_cast<double>(was);
  manifest.members = {{5, 0, 20, 400}};
  REQUIRE(SaveShards(folder, &manifest).ok());
  WriteManifest(folder, manifest);
  Coordinator coordinator;
  uint32_t sites = 7;
  PrivateState view;
  view.sites = &sites;
  // Also where a worker has no file.
  REQUIRE(WorkerSaver({nullptr, folder, Rank(1), 2, coordinator.Tell()}).Load(view).ok());
  CHECK(sites == was);
}

// One parameter in front of the cut, of two entries, and one behind, of three.
LayerSplit Split(int front, int linear) { return {LayerCut{1, 1, 2, 2}, front, linear}; }

// What a worker has of its half, or of both where it has all layers.
Arrays HalfOf(const LayerSplit& split, uint32_t rank, float value, bool has_all = false) {
  const bool is_linear = split.is_linear(Rank(rank));
  return {{"residual.0", std::vector<float>(is_linear && !has_all ? 0 : 2, value)},
          {"residual.1", std::vector<float>(is_linear || has_all ? 3 : 0, value)},
          {"codec", {10 * value}}};
}

struct Restored {
  // Over the workers that have the half now.
  std::vector<float> front = {0, 0}, linear = {0, 0, 0};
  int with_cursor = 0;
  std::vector<float> learned;
};

// Restores what is in `folder` with these halves, at each of their workers.
Restored RestoreInHalves(const std::string& folder, const LayerSplit& split,
                         bool goes_back = false) {
  Coordinator coordinator;
  Restored all;
  const auto workers = static_cast<uint32_t>(split.front_workers + split.linear_workers);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    Arrays arrays = HalfOf(split, rank, 0);
    PrivateState view;
    for (auto& [name, values] : arrays) view.arrays.push_back({name, absl::MakeSpan(values)});
    WorkerSaver saver({nullptr, folder, Rank(rank), workers, coordinator.Tell(), goes_back,
                       PushWeight::kOfMean, /*restored_sum=*/0, split});
    const auto cursor = saver.Load(view);
    REQUIRE(cursor.ok());
    all.with_cursor += cursor->has_value();
    for (size_t i = 0; i < arrays[0].second.size(); ++i) all.front[i] += arrays[0].second[i];
    for (size_t i = 0; i < arrays[1].second.size(); ++i) all.linear[i] += arrays[1].second[i];
    all.learned.push_back(arrays[2].second[0]);
  }
  return all;
}

TEST_CASE("what was held back of a half is dealt to those that have it now",
          "[worker_saver][layers]") {
  const LayerSplit before = Split(2, 1);
  // Ranks 0 and 1 held 1 and 2 of the front back, and rank 2 held 3 of the rest.
  const std::string folder =
      SavedBy(3, [&](uint32_t rank) { return HalfOf(before, rank, static_cast<float>(rank + 1)); });
  const auto [front, linear] = GENERATE(std::pair(3, 1), std::pair(4, 1), std::pair(1, 1),
                                        std::pair(2, 3), std::pair(1, 2), std::pair(2, 1));
  CAPTURE(front, linear);
  const Restored now = RestoreInHalves(folder, Split(front, linear));
  // A linear worker pushes the sum of its batches: both halves' means are over the workers in front, two before.
  const float factor = static_cast<float>(front) / 2;
  for (const float sum : now.front) CHECK(sum == Approx(3 * factor));
  for (const float sum : now.linear) CHECK(sum == Approx(3 * factor));
  CHECK(now.with_cursor == (front == 2 && linear == 1 ? 3 : 0));
  // Its codec's state is of the same half, too.
  CHECK(now.learned[0] == 10);
  CHECK(now.learned[static_cast<size_t>(front)] == 30);
}

TEST_CASE("several linear workers' residuals go to each of those there are in turn",
          "[worker_saver][layers]") {
  const LayerSplit before = Split(2, 3);
  const std::string folder =
      SavedBy(5, [&](uint32_t rank) { return HalfOf(before, rank, static_cast<float>(rank + 1)); });
  Coordinator coordinator;
  for (const uint32_t rank : {2u, 3u}) {
    std::vector<float> front, linear = {0, 0, 0};
    const PrivateState view{
        {{"residual.0", absl::MakeSpan(front)}, {"residual.1", absl::MakeSpan(linear)}},
        {},
        nullptr};
    WorkerSaver saver({nullptr, folder, Rank(rank), 4, coordinator.Tell(), /*goes_back=*/false,
                       PushWeight::kOfMean, /*restored_sum=*/0, Split(2, 2)});
    REQUIRE(saver.Load(view).ok());
    CHECK(linear == std::vector<float>(3, rank == 2 ? 3 + 5 : 4));
  }
}

TEST_CASE("workers that had all layers leave both halves what they held back",
          "[worker_saver][layers]") {
  const std::string folder = SavedBy(3, [&](uint32_t rank) {
    return HalfOf(Split(3, 0), rank, static_cast<float>(rank + 1), /*has_all=*/true);
  });
  const Restored now = RestoreInHalves(folder, Split(2, 1));
  for (const float sum : now.front) CHECK(sum == Approx(6 * 2 / 3.0));
  for (const float sum : now.linear) CHECK(sum == Approx(6 * 2 / 3.0));
  CHECK(now.with_cursor == 0);
}

TEST_CASE("workers that have all layers now take up what both halves held back",
          "[worker_saver][layers]") {
  const LayerSplit before = Split(2, 1);
  const std::string folder =
      SavedBy(3, [&](uint32_t rank) { return HalfOf(before, rank, static_cast<float>(rank + 1)); });
  const uint32_t workers = GENERATE(2u, 3u, 5u);
  CAPTURE(workers);
  Coordinator coordinator;
  std::vector<float> front(2), linear(3);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    Arrays arrays = HalfOf(before, rank, 0, /*has_all=*/true);
    PrivateState view;
    for (auto& [name, values] : arrays) view.arrays.push_back({name, absl::MakeSpan(values)});
    WorkerSaver saver({nullptr, folder, Rank(rank), workers, coordinator.Tell()});
    const auto cursor = saver.Load(view);
    REQUIRE(cursor.ok());
    CHECK_FALSE(cursor->has_value());
    for (size_t i = 0; i < front.size(); ++i) front[i] += arrays[0].second[i];
    for (size_t i = 0; i < linear.size(); ++i) linear[i] += arrays[1].second[i];
  }
  // Both halves' means were over the two in front.
  const float factor = static_cast<float>(workers) / 2;
  for (const float sum : front) CHECK(sum == Approx(3 * factor));
  for (const float sum : linear) CHECK(sum == Approx(3 * factor));
}

TEST_CASE("halves that go back, or held nothing back, take up the files of their ranks",
          "[worker_saver][layers]") {
  const LayerSplit split = Split(2, 1);
  const std::string held = SavedBy(2, [&](uint32_t rank) { return HalfOf(split, rank, 1); });
  const Restored back = RestoreInHalves(held, split, /*goes_back=*/true);
  CHECK(back.with_cursor == 2);
  for (const float sum : back.front) CHECK(sum == 2);
  for (const float sum : back.linear) CHECK(sum == 0);

  const std::string nothing = SavedBy(3, [](uint32_t) -> Arrays { return {}; });
  Coordinator coordinator;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    WorkerSaver saver({nullptr, nothing, Rank(rank), 3, coordinator.Tell(), /*goes_back=*/false,
                       PushWeight::kOfMean, /*restored_sum=*/0, Split(1, 2)});
    const auto cursor = saver.Load(PrivateState());
    REQUIRE(cursor.ok());
    CHECK(cursor->has_value());
  }
}

TEST_CASE("a job that goes back takes up the files of the same ranks, however many were saved",
          "[worker_saver]") {
  const std::string folder = SavedByThree();
  Coordinator coordinator;
  const int64_t workers = GENERATE(2, 3, 5);  // cluster.workers: some were lost, or came late.
  const uint32_t rank = GENERATE(0, 1, 2, 3);
  CAPTURE(workers, rank);
  std::vector<float> state = {0}, held = {0, 0};
  const PrivateState view{
      {{"state.0.w", absl::MakeSpan(state)}, {"residual.0", absl::MakeSpan(held)}}, {}, nullptr};
  WorkerSaver saver({nullptr, folder, Rank(rank), workers, coordinator.Tell(), /*goes_back=*/true});
  const auto cursor = saver.Load(view);
  REQUIRE(cursor.ok());
  // Of rank 3 there is none.
  CHECK(cursor->has_value() == (rank < 3));
  CHECK(state[0] == (rank < 3 ? 7 : 0));
  CHECK(held[0] == (rank < 3 ? rank + 1 : 0));
}

TEST_CASE("what a codec has learned is taken up, from a file that has it", "[worker_saver]") {
  const std::string folder = SavedByThree();
  Coordinator coordinator;
  const bool was_saved = GENERATE(false, true);
  const int64_t workers = GENERATE(1, 2, 3, 5);
  CAPTURE(was_saved, workers);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    std::vector<float> held = {0, 0}, learned = {5};
    const PrivateState view{{{"residual.0", absl::MakeSpan(held)},
                             {was_saved ? "codec" : "codec.other", absl::MakeSpan(learned), true}},
                            {},
                            nullptr};
    WorkerSaver saver({nullptr, folder, Rank(rank), workers, coordinator.Tell()});
    const auto cursor = saver.Load(view);
    REQUIRE(cursor.ok());
    CHECK(cursor->has_value() == (workers == 3));
    // Of rank 3 and 4 there was none, nor of what is called otherwise.
    CHECK(learned[0] == (was_saved && rank < 3 ? 10 * (rank + 1) : 5));
  }
}

TEST_CASE("a file of another worker that was changed is not taken up", "[worker_saver]") {
  const std::string folder = SavedByThree();
  const std::string path = folder + "/worker-2.safetensors";
  std::string bytes = TextOf(path);
  bytes.back() ^= 1;
  WriteText(path, bytes);
  Coordinator coordinator;
  std::vector<float> held = {0, 0};
  const PrivateState view{{{"residual.0", absl::MakeSpan(held)}}, {}, nullptr};
  WorkerSaver saver({nullptr, folder, Rank(0), 2, coordinator.Tell()});
  CHECK(absl::IsInvalidArgument(saver.Load(view).status()));
}

}  // namespace
}  // namespace tessera

#include "worker/checkpoint/worker_file.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"

namespace tessera {
namespace {

TEST_CASE("a loss comes back as it was, and none where none was known", "[worker_file]") {
  const std::optional<double> loss = GENERATE(std::optional<double>(), 0.0, 1.0 / 3);
  const std::string folder = absl::StrCat(getenv("TEST_TMPDIR"), "/folder");
  std::filesystem::create_directories(folder);
  WorkerCopy copy;
  copy.cursor.progress.train_loss = loss;
  const auto file = WriteWorkerFile(folder, Rank(0), copy);
  REQUIRE(file.ok());
  uint64_t local_steps = 0;
  const auto cursor =
      ReadWorkerFile(absl::StrCat(folder, "/", WrittenName(*file)), {{}, {}, &local_steps});
  REQUIRE(cursor.ok());
  CHECK(cursor->progress.train_loss == loss);
}

}  // namespace
}  // namespace tessera

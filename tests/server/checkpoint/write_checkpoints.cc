// Writes checkpoints of a small model, one after the other, for tests that kill it on the way.
//
//   write_checkpoints DIRECTORY [--shards N] [--keep N] STEP...
//
// Says "begun STEP" and "whole STEP" on stdout as it goes, or "failed STEP CODE MESSAGE", and goes on.
#define CATCH_CONFIG_RUNNER  // For the fixture, which may use Catch2's macros.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "server/checkpoint/checkpoint_directory.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

absl::Status Write(CheckpointDirectory* directory, int64_t shards, uint64_t step) {
  const absl::StatusOr<std::string> folder = directory->Begin(step);
  if (!folder.ok()) return folder.status();
  std::printf("begun %llu\n", static_cast<unsigned long long>(step));
  std::fflush(stdout);
  Manifest manifest = ManifestOf(shards, step);
  absl::Status status = SaveShards(*folder, &manifest);
  if (status.ok()) status = directory->Commit(manifest);
  if (status.ok()) directory->Prune(manifest.step);
  if (!status.ok()) directory->Abandon(step, Manifest());
  return status;
}

int Main(int argc, char** argv) {
  const std::string path = argv[1];
  int64_t shards = 2, keep = 2;
  std::vector<uint64_t> steps;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--shards") {
      shards = std::atoll(argv[++i]);
    } else if (argument == "--keep") {
      keep = std::atoll(argv[++i]);
    } else {
      steps.push_back(std::strtoull(argv[i], nullptr, 10));
    }
  }
  auto directory = CheckpointDirectory::Open(path, keep);
  if (!directory.ok()) {
    std::printf("failed open %d %s\n", static_cast<int>(directory.status().code()),
                std::string(directory.status().message()).c_str());
    return 1;
  }
  for (const uint64_t step : steps) {
    const absl::Status status = Write(directory->get(), shards, step);
    if (status.ok()) {
      std::printf("whole %llu\n", static_cast<unsigned long long>(step));
    } else {
      std::printf("failed %llu %d %s\n", static_cast<unsigned long long>(step),
                  static_cast<int>(status.code()), std::string(status.message()).c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return argc < 3 ? 2 : tessera::Main(argc, argv); }

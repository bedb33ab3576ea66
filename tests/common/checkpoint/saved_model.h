// A small model in checkpoints of any number of servers: what was saved is known for every entry.
#ifndef TESSERA_TESTS_COMMON_CHECKPOINT_SAVED_MODEL_H_
#define TESSERA_TESTS_COMMON_CHECKPOINT_SAVED_MODEL_H_

#include <stdio.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors_writer.h"
#include "common/checkpoint/slices.h"

namespace tessera {

// A folder of the test's own, empty.
inline std::string EmptyFolder() {
  const char* root = getenv("TEST_TMPDIR");
  std::string path = std::string(root != nullptr ? root : "/tmp") + "/checkpoint-XXXXXX";
  REQUIRE(mkdtemp(path.data()) != nullptr);
  return path;
}

inline std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Three parameters, one of fewer rows than there may be servers; two states.
inline Manifest ManifestOf(int64_t shards, uint64_t step = 400) {
  Manifest manifest;
  manifest.job = "digits";
  manifest.job_digest = std::string(64, 'a');
  manifest.job_text = "tessera job 1\nmodel.input.0=64\n";
  manifest.method = "local_sgd";
  manifest.version = "test";
  manifest.step = step;
  manifest.exchange = step / 20;
  manifest.generation = 3;
  manifest.layout_hash = 0xfedcba9876543210u;
  manifest.states = 2;
  manifest.model_parameters = 2;
  manifest.parameters = {{"layers.0.weight", 7, 5, false, 1},
                         {"layers.0.bias", 7, 1, true, 0.5},
                         {"squares.layers.0.weight", 2, 3, false, 1}};
  manifest.shards.resize(static_cast<size_t>(shards));
  for (int64_t s = 0; s < shards; ++s) {
    manifest.shards[static_cast<size_t>(s)] = {20, 1280, 40 + static_cast<uint64_t>(s),
                                               3,  2,    {37, 3}};
  }
  manifest.members = {{1, 0, 20, step}, {5, 1, 20, step}};
  manifest.coordinator = R"({"history":[1,2]})";
  return manifest;
}

// The step is in it, so that a file of another step is told.
inline float SavedValue(const Manifest& manifest, size_t parameter, int64_t state, int64_t row,
                        int64_t column) {
  return static_cast<float>(static_cast<double>(manifest.step) * 1000 +
                            static_cast<double>(parameter) * 400 +
                            static_cast<double>(state + 1) * 100 + static_cast<double>(row) * 10 +
                            static_cast<double>(column)) /
         8;
}

// Writes the shard's part and lists it in the manifest.
inline absl::Status SaveShard(const std::string& folder, int64_t shard, Manifest* manifest) {
  const int64_t shards = static_cast<int64_t>(manifest->shards.size());
  auto writer = SafetensorsWriter::CreatePart(folder, ShardFileName(shard, shards),
                                              ShardTensors(*manifest, shard), {{"step", "400"}});
  if (!writer.ok()) return writer.status();
  for (int64_t state = -1; state < manifest->states; ++state) {
    for (size_t p = 0; p < manifest->parameters.size(); ++p) {
      const CheckpointParameter& parameter = manifest->parameters[p];
      const ShardRows rows = RowsOf(parameter.rows, shard, parameter.OwnersOf(shards));
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = 0; column < parameter.columns; ++column) {
          const float value = SavedValue(*manifest, p, state, row, column);
          const absl::Status appended = (*writer)->Append(&value, sizeof(value));
          if (!appended.ok()) return appended;
        }
      }
    }
  }
  absl::StatusOr<CheckpointFile> file = (*writer)->Finish();
  if (!file.ok()) return file.status();
  manifest->files.push_back(*file);
  return absl::OkStatus();
}

inline absl::Status SaveShards(const std::string& folder, Manifest* manifest) {
  manifest->files.clear();
  for (int64_t s = 0; s < static_cast<int64_t>(manifest->shards.size()); ++s) {
    const absl::Status saved = SaveShard(folder, s, manifest);
    if (!saved.ok()) return saved;
  }
  return absl::OkStatus();
}

// As a commit does.
inline void NameFile(const std::string& folder, const CheckpointFile& file) {
  const std::string to = folder + "/" + file.name;
  REQUIRE(rename((folder + "/" + WrittenName(file)).c_str(), to.c_str()) == 0);
}
inline void WriteManifest(const std::string& folder, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) NameFile(folder, file);
  WriteText(folder + "/" + kManifestName, FormatManifest(manifest));
}

// A whole checkpoint in `folder`, which is there.
inline Manifest SaveCheckpoint(const std::string& folder, int64_t shards) {
  Manifest manifest = ManifestOf(shards);
  REQUIRE(SaveShards(folder, &manifest).ok());
  WriteManifest(folder, manifest);
  return manifest;
}

// Every entry that the manifest says there is has the value that was saved.
inline bool HasSavedValues(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  for (int64_t state = -1; state < manifest.states; ++state) {
    for (size_t p = 0; p < manifest.parameters.size(); ++p) {
      const CheckpointParameter& parameter = manifest.parameters[p];
      std::vector<float> values(static_cast<size_t>(parameter.rows * parameter.columns), -1);
      if (!checkpoint.ReadRows(static_cast<int64_t>(p), state, 0, parameter.rows, values.data())
               .ok()) {
        return false;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i);
        if (values[i] !=
            SavedValue(manifest, p, state, at / parameter.columns, at % parameter.columns)) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CHECKPOINT_SAVED_MODEL_H_

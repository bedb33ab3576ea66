// A server's disk as one of the holders of checkpoints (checkpoint.store: own_disks): any calls in any order, of
// processes that end in between. Nothing lies outside of the two folders afterwards, nothing there is longer than the
// job's files are, and a checkpoint that was committed is read as it was written.
//
//   input = (event(1) choices)*
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/checkpoint/manifest.h"
#include "common/store/store_client.h"
#include "server/checkpoint/held_checkpoints.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kEventsMax = 24;
constexpr int64_t kFileBytesMax = 4096;
constexpr uint64_t kSteps = 3;

uint64_t SumOfBytes(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// The folders of one input, empty.
class Disk {
 public:
  Disk() : base_(fs::path(WriteScratchFile("beside", kBeside)).parent_path()) {
    fs::remove_all(directory());
    fs::remove_all(restore());
  }

  std::string directory() const { return (base_ / "held").string(); }
  std::string restore() const { return (base_ / "restore").string(); }
  std::unique_ptr<HeldCheckpoints> Open() const {
    auto held = HeldCheckpoints::Open({directory(), restore(), /*keep=*/2, kFileBytesMax});
    TESSERA_CHECK(held.ok());
    return *std::move(held);
  }

  void CheckKept() const {
    std::set<std::string> there;
    for (const fs::directory_entry& entry : fs::directory_iterator(base_)) {
      there.insert(entry.path().filename().string());
    }
    TESSERA_CHECK(there == std::set<std::string>({"beside", "held", "restore"}));
    TESSERA_CHECK(fs::file_size(base_ / "beside") == sizeof(kBeside) - 1);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory())) {
      if (!entry.is_regular_file() || entry.path().filename().string().find(kManifestName) == 0) {
        continue;
      }
      TESSERA_CHECK(entry.file_size() <= static_cast<uint64_t>(kFileBytesMax));
    }
  }

 private:
  static constexpr char kBeside[] = "not a checkpoint's";

  const fs::path base_;
};

class Events {
 public:
  explicit Events(FuzzInput* input) : in_(*input), held_(disk_.Open()) {}

  void Run() {
    for (int events = 0; !in_.ended() && events < kEventsMax; ++events) {
      switch (in_.Below(12)) {
        case 0:
        case 1:
          Note(held_->Begin(Step()));
          break;
        case 2:
        case 3:
          WriteAnything();
          break;
        case 4:
        case 5:
          WriteFile();
          break;
        case 6:
        case 7:
          WriteManifestAndCommit();
          break;
        case 8:
          Note(held_->Abandon(Step(), Step(), in_.Bit() ? manifest_sum_ : in_.Count()));
          committed_.reset();
          break;
        case 9:
          Note(held_->Prune(Step()));
          committed_.reset();
          break;
        case 10:
          ReadAnything();
          break;
        default:
          // Another process takes its place.
          held_.reset();
          held_ = disk_.Open();
      }
      CheckCommitted();
    }
    held_.reset();
    disk_.CheckKept();
  }

 private:
  struct Committed {
    uint64_t step = 0;
    uint64_t manifest_sum = 0;
    std::string manifest;
  };

  static void Note(const absl::Status& status) {
    TESSERA_CHECK(status.ok() || !status.message().empty());
  }
  uint64_t Step() { return 1 + in_.Below(kSteps); }

  std::string Name() {
    switch (in_.Below(6)) {
      case 0:
        return kManifestName;
      case 1:
        return ShardFileName(0, 2);
      case 2:
        return ShardFileName(1, 2);
      case 3:
        return WorkerFileName(in_.Count());
      case 4:
        return "../beside";
      default:
        return std::string(in_.Piece());
    }
  }

  void WriteAnything() {
    v1::WritePieceRequest piece;
    piece.set_folder_step(in_.Bit() ? Step() : in_.Count());
    piece.set_name(Name());
    piece.set_writer(in_.Below(4));
    piece.set_offset(in_.Count());
    piece.set_data(std::string(in_.Piece()));
    piece.set_is_last(in_.Bit());
    piece.set_sum(in_.Bit() ? SumOfBytes(piece.data()) : in_.Count());
    Note(held_->Write(piece));
  }

  // In two pieces, each of which may come twice. Returns whether all of it is there.
  bool WriteWhole(uint64_t folder_step, const std::string& name, const std::string& bytes) {
    const size_t cut = in_.Below(bytes.size() + 1);
    v1::WritePieceRequest piece;
    piece.set_folder_step(folder_step);
    piece.set_name(name);
    piece.set_writer(100 + writers_++);
    piece.set_data(bytes.substr(0, cut));
    absl::Status written = held_->Write(piece);
    if (written.ok() && in_.Bit()) written = held_->Write(piece);
    piece.set_offset(cut);
    piece.set_data(bytes.substr(cut));
    piece.set_is_last(true);
    piece.set_sum(SumOfBytes(bytes));
    if (written.ok()) written = held_->Write(piece);
    if (written.ok() && in_.Bit()) {
      written = held_->Write(piece);
      // What was there is taken for the same.
      TESSERA_CHECK(written.ok());
    }
    Note(written);
    return written.ok();
  }

  void WriteFile() {
    shard_ = in_.Below(2);
    bytes_[shard_] = std::string(in_.Piece());
    const bool is_there =
        WriteWhole(Step(), ShardFileName(static_cast<int64_t>(shard_), 2), bytes_[shard_]);
    TESSERA_CHECK(!is_there || bytes_[shard_].size() <= static_cast<size_t>(kFileBytesMax));
  }

  void WriteManifestAndCommit() {
    Manifest manifest;
    manifest.job_digest = std::string(64, 'a');
    manifest.job_text = "tessera job 1\n";
    manifest.step = Step();
    manifest.model_parameters = 1;
    manifest.parameters = {{"w", 3, 2, false, 1}};
    manifest.shards.resize(2);
    for (size_t shard = 0; shard < 2; ++shard) {
      manifest.files.push_back({ShardFileName(static_cast<int64_t>(shard), 2),
                                static_cast<int64_t>(bytes_[shard].size()),
                                SumOfBytes(bytes_[shard])});
    }
    const std::string text = FormatManifest(manifest);
    TESSERA_CHECK(ParseManifest("m", text).ok());
    const uint64_t folder_step = in_.Bit() ? manifest.step : Step();
    if (!WriteWhole(folder_step, kManifestName, text)) return;
    const absl::Status status = held_->Commit(folder_step, manifest.step, SumOfBytes(text));
    Note(status);
    committed_.reset();
    if (!status.ok()) return;
    manifest_sum_ = SumOf(manifest);
    committed_ = Committed{manifest.step, manifest_sum_, text};
  }

  void ReadAnything() {
    v1::ReadPieceRequest request;
    request.set_step(Step());
    request.set_manifest_sum(in_.Bit() ? manifest_sum_ : in_.Count());
    request.set_name(Name());
    request.set_offset(in_.Count());
    Note(held_->Read(request).status());
  }

  // The last one that was committed is listed, and its manifest is read as it was written. A file that is here is
  // whole, or is said not to be.
  void CheckCommitted() {
    if (!committed_.has_value()) return;
    v1::ReadPieceRequest request;
    request.set_step(committed_->step);
    request.set_manifest_sum(committed_->manifest_sum);
    request.set_name(kManifestName);
    const auto read = held_->Read(request);
    TESSERA_CHECK(read.ok() && read->data() == committed_->manifest);
    const auto all = held_->List();
    TESSERA_CHECK(all.ok());
    bool is_listed = false;
    for (const v1::HeldCheckpoint& held : all->checkpoints()) {
      if (held.manifest_sum() != committed_->manifest_sum) continue;
      is_listed = true;
      for (const v1::HeldFile& file : held.files()) CheckFile(request, file);
    }
    TESSERA_CHECK(is_listed);
  }

  void CheckFile(v1::ReadPieceRequest request, const v1::HeldFile& file) {
    request.set_name(file.name());
    const auto read = held_->Read(request);
    TESSERA_CHECK(read.ok() == file.is_here());
    if (!file.is_here() || !file.broken().empty()) return;
    const auto manifest = ParseManifest("m", committed_->manifest);
    TESSERA_CHECK(SumOfBytes(read->data()) == manifest->FindFile(file.name())->sum);
  }

  FuzzInput& in_;
  const Disk disk_;
  std::unique_ptr<HeldCheckpoints> held_;
  uint64_t writers_ = 0;
  size_t shard_ = 0;
  std::string bytes_[2];  // of the shards' files that were written last
  uint64_t manifest_sum_ = 0;
  std::optional<Committed> committed_;
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::FuzzInput input(data, size);
  tessera::Events(&input).Run();
  return 0;
}

// Checkpoints of three servers that each have a disk, in one process but over real connections.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <xxhash.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/grpc_server.h"
#include "common/store/own_disks.h"
#include "server/checkpoint/own_disks_store.h"
#include "server/rpc/checkpoint_store_service.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

constexpr char kDigest[] = "abcdef0123456789";

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  return names;
}

// A server's store with its port.
struct Disk {
  Disk(const std::string& folder, int rank, int64_t keep, const std::string& restore = "",
       uint64_t replicas = 0)
      : folder(folder) {
    v1::Job job;
    job.mutable_checkpoint()->set_directory(folder);
    job.mutable_checkpoint()->set_restore(restore);
    job.mutable_checkpoint()->set_store("own_disks");
    job.mutable_checkpoint()->set_copies(2);
    job.mutable_checkpoint()->set_keep(keep);
    job.mutable_cluster()->set_replicas(replicas);
    store = std::make_unique<OwnDisksStore>(job, rank, kDigest, ManifestOf(3));
    REQUIRE(store->Prepare().ok());
    service = std::make_unique<CheckpointStoreService>(store->held(), kDigest);
    auto started = GrpcServer::Start({"127.0.0.1:0", {service.get()}});
    REQUIRE(started.ok());
    server = *std::move(started);
  }

  const std::string folder;
  std::unique_ptr<OwnDisksStore> store;
  std::unique_ptr<CheckpointStoreService> service;
  std::unique_ptr<GrpcServer> server;
};

struct Job {
  // With one folder for all, or one each; with standbys, or without.
  explicit Job(bool is_shared = false, int64_t keep = 3, uint64_t replicas = 0)
      : keep(keep), replicas(replicas) {
    const std::string one = EmptyFolder();
    for (int rank = 0; rank < 3; ++rank) folders.push_back(is_shared ? one : EmptyFolder());
    Start("");
  }
  // All processes end, and come again.
  void Start(const std::string& restore) {
    disks.clear();
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& folder = folders[static_cast<size_t>(rank)];
      disks.push_back(std::make_unique<Disk>(folder, rank, keep,
                                             restore.empty() ? "" : folder + restore, replicas));
    }
    leaders = {0, 1, 2};
    Tell();
  }
  // Server `rank` ends, and `standby` leads its shard.
  void TakeOver(int rank, int standby) {
    disks[static_cast<size_t>(rank)]->server.reset();
    leaders[static_cast<size_t>(rank)] = static_cast<size_t>(standby);
    Tell();
  }
  void Tell() {
    for (const auto& disk : disks) disk->store->SetServers(addresses());
  }
  // Those that are there.
  std::vector<std::string> addresses() const {
    std::vector<std::string> all;
    for (const auto& disk : disks) {
      all.push_back(disk->server == nullptr ? "" : disk->server->address());
    }
    return all;
  }
  absl::Status Do(DiskTask::Kind kind, uint64_t folder_step, const Manifest& manifest) {
    return disks[0]->store->Perform({kind, 1, folder_step, manifest, addresses()});
  }
  // Each server writes its part, and a worker's comes.
  Manifest Write(uint64_t step) {
    Manifest manifest = ManifestOf(3, step);
    for (int64_t shard = 0; shard < 3; ++shard) {
      const std::string name = ShardFileName(shard, 3);
      const Disk& leader = *disks[leaders[static_cast<size_t>(shard)]];
      auto writer = SafetensorsWriter::CreatePart(leader.store->Parts(), step, name,
                                                  ShardTensors(manifest, shard), {});
      REQUIRE(writer.ok());
      // As SaveShard has them, read back from a whole checkpoint in a folder.
      const std::string folder = EmptyFolder();
      Manifest same = ManifestOf(3, step);
      REQUIRE(SaveShard(folder, shard, &same).ok());
      const auto reader = SafetensorsReader::Open(folder + "/" + WrittenName(same.files[0]));
      REQUIRE(reader.ok());
      for (const TensorSpec& tensor : ShardTensors(manifest, shard)) {
        std::string bytes(static_cast<size_t>(tensor.bytes()), 0);
        REQUIRE(
            (*reader)->Read(*(*reader)->Find(tensor.name), 0, tensor.bytes(), bytes.data()).ok());
        REQUIRE((*writer)->Append(bytes.data(), tensor.bytes()).ok());
      }
      auto file = (*writer)->Finish();
      CAPTURE(file.status());
      REQUIRE(file.ok());
      manifest.files.push_back(*file);
    }
    // More than two pieces.
    TensorSpec tensor;
    tensor.name = "residual.0";
    tensor.dtype = "U8";
    tensor.shape = {(int64_t{5} << 19) + 3};
    const OtherDisks others(addresses(), -1, kDigest, 2, AwayIn(addresses()));
    auto writer = SafetensorsWriter::CreatePart(
        [&](uint64_t folder_step, const std::string& name) {
          return others.OpenPart(folder_step, name);
        },
        step, WorkerFileName(1), {tensor}, {});
    REQUIRE(writer.ok());
    const std::string bytes(static_cast<size_t>(tensor.bytes()), 'w');
    REQUIRE((*writer)->Append(bytes.data(), tensor.bytes()).ok());
    auto file = (*writer)->Finish();
    REQUIRE(file.ok());
    manifest.files.push_back(*file);
    return manifest;
  }
  Manifest Save(uint64_t step) {
    REQUIRE(Do(DiskTask::Kind::kBegin, step, {}).ok());
    Manifest manifest = Write(step);
    const absl::Status committed = Do(DiskTask::Kind::kCommit, step, manifest);
    CAPTURE(committed);
    REQUIRE(committed.ok());
    return manifest;
  }
  std::string StepOf(int rank, uint64_t step) const {
    return absl::StrCat(folders[static_cast<size_t>(rank)], "/", StepFolderName(step));
  }
  void Lose(int rank) { std::filesystem::remove_all(folders[static_cast<size_t>(rank)]); }

  const int64_t keep;
  const uint64_t replicas;
  std::vector<std::string> folders;
  std::vector<std::unique_ptr<Disk>> disks;
  std::vector<size_t> leaders;  // of each shard
};

bool HasAll(const Checkpoint& checkpoint) {
  for (const CheckpointFile& file : checkpoint.manifest().files) {
    FileOwner owner;
    if (ParseFileName(file.name, &owner) && owner.is_worker) {
      if (!checkpoint.OpenWorker(owner.rank).ok()) return false;
    }
  }
  return checkpoint.VerifySums().ok() && HasSavedValues(checkpoint);
}

TEST_CASE("every file is on two disks, and any one disk may be lost", "[checkpoint]") {
  Job job;
  job.Save(20);
  const Manifest manifest = job.Save(40);
  using Names = std::set<std::string>;
  CHECK(NamesIn(job.StepOf(0, 40)) ==
        Names{kManifestName, ShardFileName(0, 3), ShardFileName(2, 3)});
  CHECK(NamesIn(job.StepOf(1, 40)) ==
        Names{kManifestName, ShardFileName(0, 3), ShardFileName(1, 3), WorkerFileName(1)});
  CHECK(NamesIn(job.StepOf(2, 40)) ==
        Names{kManifestName, ShardFileName(1, 3), ShardFileName(2, 3), WorkerFileName(1)});
  const int lost = GENERATE(0, 1, 2);
  CAPTURE(lost);
  job.Lose(lost);
  job.Start("");
  v1::RestoreOrder order;
  order.set_step(40);
  order.set_manifest_sum(SumOf(manifest));
  for (const auto& disk : job.disks) {
    const auto checkpoint = disk->store->Open(order);
    CAPTURE(checkpoint.status());
    REQUIRE(checkpoint.ok());
    CHECK(HasAll(**checkpoint));
  }
}

TEST_CASE("other servers, fewer than there were, fetch what their rows lie in", "[checkpoint]") {
  Job job;
  const Manifest manifest = job.Save(40);
  // Server 2 is none of the job any more, and its disk is not there.
  job.disks.pop_back();
  v1::RestoreOrder order;
  order.set_step(40);
  order.set_manifest_sum(SumOf(manifest));
  for (const auto& disk : job.disks) {
    disk->store->SetServers(job.addresses());
    const auto checkpoint = disk->store->Open(order);
    REQUIRE(checkpoint.ok());
    CHECK(HasAll(**checkpoint));
    disk->store->Complete(**checkpoint);
  }
}

TEST_CASE("a disk that was lost gets back what it should have", "[checkpoint]") {
  Job job;
  const Manifest manifest = job.Save(40);
  const auto before = NamesIn(job.StepOf(2, 40));
  job.Lose(2);
  job.Start("");
  v1::RestoreOrder order;
  order.set_step(40);
  order.set_manifest_sum(SumOf(manifest));
  const auto checkpoint = job.disks[2]->store->Open(order);
  REQUIRE(checkpoint.ok());
  job.disks[2]->store->Complete(**checkpoint);
  CHECK(NamesIn(job.StepOf(2, 40)) == before);
  // And so the next one may be lost.
  job.Lose(0);
  job.Lose(1);
  job.Start("");
  job.disks[2]->store->SetServers(job.addresses());
  CHECK(Checkpoint::OpenParts(job.StepOf(2, 40), nullptr).ok());
}

TEST_CASE("the newest is found among all disks, and copies that lie are passed over",
          "[checkpoint]") {
  Job job;
  job.Save(20);
  job.Save(40);
  job.disks.clear();
  uint64_t step = 40;
  SECTION("whole") {}
  SECTION("a disk is empty") { job.Lose(0); }
  SECTION("a copy is cut") {
    REQUIRE(truncate((job.StepOf(0, 40) + "/" + ShardFileName(0, 3)).c_str(), 100) == 0);
  }
  SECTION("a copy has another bit") {
    const std::string path = job.StepOf(1, 40) + "/" + ShardFileName(1, 3);
    std::string text = TextOf(path);
    text[text.size() / 2] ^= 1;
    WriteText(path, text);
  }
  SECTION("both copies lie") {
    for (const int rank : {0, 1}) {
      WriteText(job.StepOf(rank, 40) + "/" + ShardFileName(0, 3), "nothing of it");
    }
    step = 20;
  }
  SECTION("a manifest is gone") {
    REQUIRE(unlink((job.StepOf(1, 40) + "/" + kManifestName).c_str()) == 0);
  }
  job.Start("/");
  const auto found = job.disks[0]->store->FindRestored();
  CAPTURE(found.status());
  REQUIRE(found.ok());
  CHECK((*found)->manifest().step == step);
  CHECK(HasAll(**found));
  // The others are told which, and find their files.
  v1::RestoreOrder order;
  order.set_from_restore(true);
  order.set_step(step);
  order.set_manifest_sum(SumOf((*found)->manifest()));
  for (const auto& disk : job.disks) {
    const auto checkpoint = disk->store->Open(order);
    REQUIRE(checkpoint.ok());
    CHECK(HasAll(**checkpoint));
  }
}

TEST_CASE("two neighbours' disks lost is a refusal", "[checkpoint]") {
  Job job;
  job.Save(40);
  job.disks.clear();
  job.Lose(1);
  job.Lose(2);
  job.Start("/");
  const auto found = job.disks[0]->store->FindRestored();
  REQUIRE(absl::IsNotFound(found.status()));
  CHECK(absl::StrContains(found.status().message(),
                          "step 40 lacks shard-1-of-3.safetensors (want it on server 1 and server "
                          "2), worker-1.safetensors (want it on server 1 and server 2)"));
}

TEST_CASE("processes on one machine may share the folder", "[checkpoint]") {
  Job job(/*is_shared=*/true, /*keep=*/1);
  job.Save(20);
  const Manifest manifest = job.Save(40);
  // It is the whole checkpoint that a shared folder has.
  const auto whole = Checkpoint::Open(job.StepOf(0, 40));
  REQUIRE(whole.ok());
  CHECK(HasAll(**whole));
  REQUIRE(job.Do(DiskTask::Kind::kPrune, 40, manifest).ok());
  CHECK(NamesIn(job.folders[0]) == std::set<std::string>{StepFolderName(40), "held.lock"});
}

TEST_CASE("what is given up or old goes from all disks", "[checkpoint]") {
  Job job(/*is_shared=*/false, /*keep=*/1);
  const Manifest first = job.Save(20);
  const Manifest second = job.Save(40);
  Manifest newest;
  newest.step = 40;
  REQUIRE(job.Do(DiskTask::Kind::kPrune, 40, newest).ok());
  for (int rank = 0; rank < 3; ++rank) CHECK(NamesIn(job.StepOf(rank, 20)).empty());
  // A commit that was done unheard is withdrawn.
  REQUIRE(job.Do(DiskTask::Kind::kBegin, 60, {}).ok());
  Manifest third = job.Write(60);
  REQUIRE(job.Do(DiskTask::Kind::kCommit, 60, third).ok());
  // Asked for again it is done.
  CHECK(job.Do(DiskTask::Kind::kCommit, 60, third).ok());
  REQUIRE(job.Do(DiskTask::Kind::kAbandon, 60, third).ok());
  REQUIRE(job.Do(DiskTask::Kind::kBegin, 80, {}).ok());
  (void)job.Write(80);
  REQUIRE(job.Do(DiskTask::Kind::kAbandon, 80, {}).ok());
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(NamesIn(job.folders[static_cast<size_t>(rank)]) ==
          std::set<std::string>{StepFolderName(40), "held.lock"});
  }
}

TEST_CASE("a server that is not there fails a checkpoint, which names it", "[checkpoint]") {
  Job job;
  std::vector<std::string> addresses = job.addresses();
  addresses[1].clear();
  const absl::Status begun =
      job.disks[0]->store->Perform({DiskTask::Kind::kBegin, 1, 20, {}, addresses});
  CHECK(begun.message() == "server 1: it is not there");
}

TEST_CASE("with standbys a server that is away costs no checkpoint, and no copy", "[checkpoint]") {
  Job job(/*is_shared=*/false, /*keep=*/3, /*replicas=*/1);
  using Names = std::set<std::string>;
  job.Save(20);
  // Its shard is led by the next one, which has a copy of what it has saved, or by the one before, which has not.
  const int standby = GENERATE(2, 0);
  CAPTURE(standby);
  job.TakeOver(1, standby);
  const Manifest manifest = job.Save(40);
  CHECK(NamesIn(job.StepOf(1, 40)).empty());
  // Each file is on both disks that are left.
  for (const int rank : {0, 2}) {
    CHECK(NamesIn(job.StepOf(rank, 40)) == Names{kManifestName, ShardFileName(0, 3),
                                                 ShardFileName(1, 3), ShardFileName(2, 3),
                                                 WorkerFileName(1)});
  }
  // All go back: the shard's file is its new leader's own.
  v1::RestoreOrder order;
  order.set_step(40);
  order.set_manifest_sum(SumOf(manifest));
  for (const int rank : {0, 2}) {
    const auto checkpoint = job.disks[static_cast<size_t>(rank)]->store->Open(order);
    REQUIRE(checkpoint.ok());
    CHECK(HasAll(**checkpoint));
  }
  // One that comes back, and leads nothing, has what is saved from then on.
  job.disks[1] = std::make_unique<Disk>(job.folders[1], 1, 3, "", 1);
  job.Tell();
  job.Save(60);
  CHECK(NamesIn(job.StepOf(1, 60)).count(ShardFileName(0, 3)) == 1);
  // Of that any one disk may be lost.
  job.disks.clear();
  const int lost = GENERATE(0, 1, 2);
  CAPTURE(lost);
  job.Lose(lost);
  job.Start("/");
  const auto found = job.disks[0]->store->FindRestored();
  CAPTURE(found.status());
  REQUIRE(found.ok());
  CHECK((*found)->manifest().step == 60);
  CHECK(HasAll(**found));
}

TEST_CASE("with standbys a server alone keeps all that is written", "[checkpoint]") {
  Job job(/*is_shared=*/false, /*keep=*/3, /*replicas=*/1);
  job.TakeOver(1, 0);
  job.TakeOver(2, 0);
  job.Save(40);
  const auto whole = Checkpoint::Open(job.StepOf(0, 40));
  REQUIRE(whole.ok());
  CHECK(HasAll(**whole));
  // A worker that knows of no server has nowhere to write.
  const OtherDisks none({"", ""}, -1, kDigest, 2, {0, 1});
  CHECK(none.OpenPart(40, WorkerFileName(1)).status().message() ==
        "checkpoint: no server is there to keep what is written here");
}

TEST_CASE("a worker fetches what it reads, and no more", "[checkpoint]") {
  Job job;
  const Manifest manifest = job.Save(40);
  const auto others = std::make_shared<const OtherDisks>(job.addresses(), -1, kDigest, 2);
  const std::string folder = EmptyFolder() + "/fetched";
  REQUIRE(BeginFetched(*others, 40, SumOf(manifest), folder).ok());
  const auto checkpoint =
      Checkpoint::OpenParts(folder, BringFrom(others, 40, SumOf(manifest), folder));
  REQUIRE(checkpoint.ok());
  const auto file = (*checkpoint)->OpenWorker(1);
  REQUIRE(file.ok());
  REQUIRE(*file != nullptr);
  CHECK((*file)->Find("residual.0") != nullptr);
  CHECK(NamesIn(folder) == std::set<std::string>{kManifestName, WorkerFileName(1)});
  const absl::Status other = BeginFetched(*others, 40, 17, folder);
  CHECK(absl::IsNotFound(other));
  CHECK(absl::StrContains(other.message(), "manifest.json of step 40 is on no server's disk"));
}

TEST_CASE("what a stranger or a broken peer sends comes to nothing", "[checkpoint]") {
  Job job;
  HeldCheckpoints& held = *job.disks[0]->store->held();
  REQUIRE(held.Begin(20).ok());
  const std::string partial = job.folders[0] + "/" + PartialFolderName(20);
  v1::WritePieceRequest piece;
  piece.set_folder_step(20);
  piece.set_writer(7);
  piece.set_data("12345");
  for (const char* name : {"../escaped", "", "/etc/passwd", "manifest.json.part",
                           "checkpoints.lock", "worker-1.safetensors/../../x"}) {
    piece.set_name(name);
    CAPTURE(name);
    CHECK(absl::IsInvalidArgument(held.Write(piece)));
  }
  piece.set_name(WorkerFileName(1));
  SECTION("a file that begins in its middle") {
    piece.set_offset(5);
    CHECK(absl::IsInvalidArgument(held.Write(piece)));
  }
  SECTION("a gap") {
    REQUIRE(held.Write(piece).ok());
    piece.set_offset(6);
    CHECK(absl::IsInvalidArgument(held.Write(piece)));
    // The file is gone with that, and its place free.
    CHECK(NamesIn(partial).empty());
  }
  SECTION("another sum") {
    piece.set_is_last(true);
    piece.set_sum(1);
    CHECK(absl::IsInvalidArgument(held.Write(piece)));
    CHECK(NamesIn(partial).empty());
  }
  SECTION("more than any file of the job has") {
    piece.set_offset(uint64_t{1} << 60);
    const absl::Status refused = held.Write(piece);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(absl::StrContains(refused.message(), "no file of the job is longer"));
  }
  SECTION("a piece that is too long") {
    piece.set_data(std::string((1 << 20) + 1, 'x'));
    CHECK(absl::IsInvalidArgument(held.Write(piece)));
  }
  SECTION("a checkpoint that was not begun") {
    piece.set_folder_step(21);
    CHECK(absl::IsNotFound(held.Write(piece)));
  }
  SECTION("a piece comes twice, and the last one, too") {
    REQUIRE(held.Write(piece).ok());
    REQUIRE(held.Write(piece).ok());
    piece.set_offset(5);
    piece.set_data("678");
    piece.set_is_last(true);
    piece.set_sum(XXH3_64bits("12345678", 8));
    REQUIRE(held.Write(piece).ok());
    REQUIRE(held.Write(piece).ok());
    CHECK(NamesIn(partial).size() == 1);
  }
  SECTION("too many files at once") {
    for (uint64_t writer = 0; writer < kHeldWritersMax; ++writer) {
      piece.set_writer(100 + writer);
      REQUIRE(held.Write(piece).ok());
    }
    piece.set_writer(1);
    CHECK(absl::IsUnavailable(held.Write(piece)));
    // Another checkpoint begins without them.
    REQUIRE(held.Begin(30).ok());
    piece.set_folder_step(30);
    CHECK(held.Write(piece).ok());
  }
  SECTION("another job") {
    auto client = std::make_shared<StoreClient>(0, job.disks[0]->server->address(), "other");
    const absl::Status refused = client->Begin(40);
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK(absl::StrContains(refused.message(), "of another job"));
  }
  SECTION("a file that the checkpoint does not have") {
    job.disks.clear();
    job.Start("");
    const Manifest manifest = job.Save(40);
    v1::ReadPieceRequest request;
    request.set_step(40);
    request.set_manifest_sum(SumOf(manifest));
    for (const char* name : {"../checkpoints.lock", "worker-7.safetensors", ""}) {
      request.set_name(name);
      CHECK(absl::IsInvalidArgument(job.disks[0]->store->held()->Read(request).status()));
    }
    // It is of server 1.
    request.set_name(ShardFileName(1, 3));
    CHECK(absl::IsNotFound(job.disks[0]->store->held()->Read(request).status()));
  }
}

}  // namespace
}  // namespace tessera

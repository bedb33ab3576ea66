#include "common/store/own_disks.h"

#include <algorithm>
#include <utility>

#include <xxhash.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/safetensors_reader.h"

namespace tessera {
namespace {

// Removes a file unless it got its name.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  ~Unfinished() {
    if (!path_.empty()) (void)RemoveFile(path_);
  }
  void Keep() { path_.clear(); }

 private:
  std::string path_;
};

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

absl::Status NoneHas(uint64_t step, const std::string& name, const std::vector<uint64_t>& holders,
                     const std::vector<std::string>& why) {
  return absl::NotFoundError(
      absl::StrCat("checkpoint: ", name, " of step ", step, " is on no server's disk, want it on ",
                   DescribeServers(holders), "; ", absl::StrJoin(why, "; ")));
}

}  // namespace

std::vector<uint64_t> HoldersOf(const FileOwner& owner, uint64_t servers, int64_t copies) {
  std::vector<uint64_t> holders;
  const uint64_t count = std::min<uint64_t>(servers, static_cast<uint64_t>(copies));
  for (uint64_t i = 0; i < count; ++i) holders.push_back((owner.rank + i) % servers);
  return holders;
}

std::string DescribeServers(const std::vector<uint64_t>& ranks) {
  return absl::StrJoin(ranks, " and ", [](std::string* out, uint64_t rank) {
    absl::StrAppend(out, "server ", rank);
  });
}

std::set<uint64_t> AwayIn(const std::vector<std::string>& addresses) {
  std::set<uint64_t> away;
  for (uint64_t rank = 0; rank < addresses.size(); ++rank) {
    if (addresses[rank].empty()) away.insert(rank);
  }
  return away;
}

OtherDisks::OtherDisks(const std::vector<std::string>& addresses, int64_t own,
                       const std::string& job_digest, int64_t copies,
                       const std::set<uint64_t>& away)
    : own_(own), copies_(copies) {
  for (uint64_t rank = 0; rank < addresses.size(); ++rank) {
    clients_.push_back(std::make_shared<StoreClient>(rank, addresses[rank], job_digest));
    there_.push_back(static_cast<int64_t>(rank) == own_ || away.count(rank) == 0);
  }
}

std::vector<uint64_t> OtherDisks::PlacesFor(const FileOwner& owner) const {
  // A server keeps what it writes, whichever shard it is of.
  const uint64_t first = own_ >= 0 ? static_cast<uint64_t>(own_) : owner.rank % count();
  std::vector<uint64_t> places;
  for (uint64_t i = 0; i < count() && static_cast<int64_t>(places.size()) < copies_; ++i) {
    const uint64_t rank = (first + i) % count();
    if (IsThere(rank)) places.push_back(rank);
  }
  return places;
}

absl::StatusOr<std::unique_ptr<PartFile>> OtherDisks::OpenPart(uint64_t folder_step,
                                                               const std::string& name) const {
  FileOwner owner;
  TESSERA_CHECK(ParseFileName(name, &owner));
  if (clients_.empty()) {
    return absl::UnavailableError("checkpoint: where the servers are is not known here yet");
  }
  std::vector<std::unique_ptr<PartFile>> parts;
  for (const uint64_t rank : PlacesFor(owner)) {
    if (static_cast<int64_t>(rank) == own_) continue;
    parts.push_back(clients_[rank]->OpenPart(folder_step, name));
  }
  if (parts.empty() && own_ < 0) {
    return absl::UnavailableError("checkpoint: no server is there to keep what is written here");
  }
  if (parts.empty()) return std::unique_ptr<PartFile>();
  return WriteToAll(std::move(parts));
}

std::vector<uint64_t> OtherDisks::AskedFor(const FileOwner& owner) const {
  // Whoever should have it comes first: the others are asked for nothing in most cases.
  std::vector<uint64_t> asked = HoldersOf(owner, count(), copies_);
  // A checkpoint of a job with another number of servers lies elsewhere.
  for (uint64_t rank = 0; rank < count(); ++rank) {
    if (std::find(asked.begin(), asked.end(), rank) == asked.end()) asked.push_back(rank);
  }
  asked.erase(std::remove(asked.begin(), asked.end(), static_cast<uint64_t>(own_)), asked.end());
  // One that is away costs its patience.
  std::stable_partition(asked.begin(), asked.end(),
                        [this](uint64_t rank) { return IsThere(rank); });
  return asked;
}

absl::StatusOr<Manifest> OtherDisks::FetchManifest(uint64_t step, uint64_t manifest_sum) const {
  std::vector<std::string> why;
  std::vector<uint64_t> all;
  for (uint64_t rank = 0; rank < count(); ++rank) {
    all.push_back(rank);
    if (static_cast<int64_t>(rank) == own_) continue;
    // A manifest is small enough to be held whole.
    std::string text;
    absl::Status status;
    while (true) {
      const absl::StatusOr<v1::ReadPieceReply> piece =
          clients_[rank]->Read(step, manifest_sum, kManifestName, text.size());
      status = piece.status();
      if (!status.ok() || piece->data().empty()) break;
      text += piece->data();
      if (static_cast<int64_t>(text.size()) > kManifestBytesMax) {
        status = absl::InvalidArgumentError(
            absl::StrCat(clients_[rank]->Describe(), ": its manifest does not end"));
        break;
      }
    }
    if (status.ok()) {
      absl::StatusOr<Manifest> manifest = ParseManifest(kManifestName, text);
      if (manifest.ok()) status = CheckSum(*manifest, manifest_sum, kManifestName);
      if (manifest.ok() && status.ok()) return manifest;
      if (!manifest.ok()) status = manifest.status();
    }
    why.push_back(std::string(status.message()));
  }
  return NoneHas(step, kManifestName, all, why);
}

// Pieces go to the disk as they come: no more than one is held.
absl::Status OtherDisks::FetchFrom(StoreClient* client, uint64_t step, uint64_t manifest_sum,
                                   const CheckpointFile& file, const std::string& folder,
                                   const std::function<bool()>& goes_on) const {
  const std::string path = absl::StrCat(folder, "/", file.name);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> out,
                           DurableFile::CreateUnique(absl::StrCat(path, ".part")));
  Unfinished unfinished(out->path());
  const std::unique_ptr<XXH3_state_t, FreeState> sum(XXH3_createState());
  TESSERA_CHECK(sum != nullptr);
  XXH3_64bits_reset(sum.get());
  int64_t bytes = 0;
  while (bytes < file.bytes) {
    if (goes_on && !goes_on()) return absl::CancelledError("checkpoint: it is not wanted any more");
    TESSERA_ASSIGN_OR_RETURN(
        const v1::ReadPieceReply piece,
        client->Read(step, manifest_sum, file.name, static_cast<uint64_t>(bytes)));
    if (piece.data().empty()) break;
    bytes += static_cast<int64_t>(piece.data().size());
    // A copy that is longer than it should be fills no disk.
    if (bytes > file.bytes) break;
    XXH3_64bits_update(sum.get(), piece.data().data(), piece.data().size());
    TESSERA_RETURN_IF_ERROR(
        out->Write(piece.data().data(), static_cast<int64_t>(piece.data().size())));
  }
  if (bytes != file.bytes || XXH3_64bits_digest(sum.get()) != file.sum) {
    const absl::Status wrong = absl::DataLossError(
        absl::StrCat(client->Describe(), ": its copy of ", file.name, " has ", bytes,
                     " bytes or more, and not those that were written, which are ", file.bytes));
    Log(LogLevel::kWarning, absl::StrCat("checkpoint: a copy is passed over step=", step, " why=\"",
                                         wrong.message(), "\""));
    return wrong;
  }
  TESSERA_RETURN_IF_ERROR(out->Finish());
  TESSERA_RETURN_IF_ERROR(ReplaceFile(out->path(), path));
  unfinished.Keep();
  Log(LogLevel::kInfo, absl::StrCat("checkpoint: fetched step=", step, " file=", file.name,
                                    " bytes=", bytes, " from=\"", client->Describe(), "\""));
  return SyncFolder(folder);
}

absl::Status OtherDisks::FetchFile(uint64_t step, uint64_t manifest_sum, const CheckpointFile& file,
                                   const std::string& folder,
                                   const std::function<bool()>& goes_on) const {
  FileOwner owner;
  if (!ParseFileName(file.name, &owner)) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: \"", file.name, "\" is no name of a checkpoint's file"));
  }
  // What each said is in the message if nobody has it.
  std::vector<std::string> why;
  for (const uint64_t rank : AskedFor(owner)) {
    const absl::Status fetched =
        FetchFrom(clients_[rank].get(), step, manifest_sum, file, folder, goes_on);
    // What this disk does not take no other server can help with.
    const bool is_own = !absl::StartsWith(fetched.message(), clients_[rank]->Describe());
    if (fetched.ok() || absl::IsCancelled(fetched) || is_own) return fetched;
    why.push_back(std::string(fetched.message()));
  }
  return NoneHas(step, file.name, HoldersOf(owner, count(), copies_), why);
}

BringFile BringFrom(std::shared_ptr<const OtherDisks> disks, uint64_t step, uint64_t manifest_sum,
                    std::string folder) {
  return [disks = std::move(disks), step, manifest_sum, folder = std::move(folder)](
             const CheckpointFile& file, const std::function<bool()>& goes_on) -> absl::Status {
    // All bytes are read even of a file that is there: a disk that came back may have anything on it.
    const absl::StatusOr<uint64_t> sum =
        SumOfFile(absl::StrCat(folder, "/", file.name), file.bytes, goes_on);
    if (sum.ok() && *sum == file.sum) return absl::OkStatus();
    if (absl::IsCancelled(sum.status())) return sum.status();
    if (!absl::IsNotFound(sum.status())) {
      Log(LogLevel::kWarning,
          absl::StrCat("checkpoint: the file here is not what was written, another copy is taken "
                       "step=",
                       step, " file=", file.name));
    }
    return disks->FetchFile(step, manifest_sum, file, folder, goes_on);
  };
}

absl::Status BeginFetched(const OtherDisks& disks, uint64_t step, uint64_t manifest_sum,
                          const std::string& folder) {
  // What an earlier process of this worker had fetched may be of another step.
  TESSERA_RETURN_IF_ERROR(RemoveFolder(folder));
  TESSERA_ASSIGN_OR_RETURN(const Manifest manifest, disks.FetchManifest(step, manifest_sum));
  TESSERA_RETURN_IF_ERROR(MakeFolder(folder));
  const std::string text = FormatManifest(manifest);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file,
                           DurableFile::Create(absl::StrCat(folder, "/", kManifestName)));
  TESSERA_RETURN_IF_ERROR(file->Write(text.data(), static_cast<int64_t>(text.size())));
  return file->Finish();
}

}  // namespace tessera

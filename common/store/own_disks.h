// Where the files of a checkpoint are on servers' own disks (checkpoint.store: own_disks), and how they come together.
//
// The file of server r is on server r's disk, and on that of the next server where there are two copies. A worker keeps
// nothing itself: the file of worker r is on server r modulo the servers, and on the next one. Where servers have
// standbys some may be away while the job goes on: a shard's file is then on the disk of whoever leads it, and what a
// server would have that is away is on that of the next one that is there.
#ifndef TESSERA_COMMON_STORE_OWN_DISKS_H_
#define TESSERA_COMMON_STORE_OWN_DISKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/part_file.h"
#include "common/store/store_client.h"

namespace tessera {

// The servers whose disks are to have the file of this name, in a job of so many servers that are all there. At most
// `copies`, each once.
std::vector<uint64_t> HoldersOf(const FileOwner& owner, uint64_t servers, int64_t copies);
// "server 1 and server 2".
std::string DescribeServers(const std::vector<uint64_t>& ranks);

// Which servers are away, by a list that is empty where one is.
std::set<uint64_t> AwayIn(const std::vector<std::string>& addresses);

// The stores of all servers of a job, by rank.
class OtherDisks {
 public:
  // `addresses` by rank; who has an empty one cannot be called, and every call says so. A server that asks is `own`,
  // whose disk is not asked over the network; -1: a worker asks. Nothing is written to those that are `away`, while
  // their standbys lead in their place, and they are asked last.
  OtherDisks(const std::vector<std::string>& addresses, int64_t own, const std::string& job_digest,
             int64_t copies, const std::set<uint64_t>& away = {});

  int64_t own() const { return own_; }
  uint64_t count() const { return clients_.size(); }
  int64_t copies() const { return copies_; }
  // Whether it is written to.
  bool IsThere(uint64_t rank) const { return there_[rank]; }
  // Not for own().
  const std::shared_ptr<StoreClient>& at(uint64_t rank) const { return clients_[rank]; }

  // Opens a part on the disks of all other servers that are to have it and are there; nullptr: there are none.
  absl::StatusOr<std::unique_ptr<PartFile>> OpenPart(uint64_t folder_step,
                                                     const std::string& name) const;

  // Reads the manifest with this sum of whoever has it.
  //   kNotFound  nobody has; the message says what each said
  absl::StatusOr<Manifest> FetchManifest(uint64_t step, uint64_t manifest_sum) const;
  // Reads `file` of the checkpoint of `step` into `folder`, of whoever has it with the right sum. A copy with another
  // sum is passed over, with a line in the log. The codes are FetchManifest's, DurableFile's, and kCancelled where
  // `goes_on`, which may be empty, says no.
  absl::Status FetchFile(uint64_t step, uint64_t manifest_sum, const CheckpointFile& file,
                         const std::string& folder, const std::function<bool()>& goes_on) const;

 private:
  // The disks that a file goes to that is written here: the own one, if there is one, and others that are there.
  std::vector<uint64_t> PlacesFor(const FileOwner& owner) const;
  // The other servers, those that should have the file first.
  std::vector<uint64_t> AskedFor(const FileOwner& owner) const;
  absl::Status FetchFrom(StoreClient* client, uint64_t step, uint64_t manifest_sum,
                         const CheckpointFile& file, const std::string& folder,
                         const std::function<bool()>& goes_on) const;

  std::vector<std::shared_ptr<StoreClient>> clients_;
  std::vector<bool> there_;
  const int64_t own_;
  const int64_t copies_;
};

// Brings files into `folder`: those that are there with the right sum stay, others are fetched.
BringFile BringFrom(std::shared_ptr<const OtherDisks> disks, uint64_t step, uint64_t manifest_sum,
                    std::string folder);
// Makes `folder` anew, with nothing in it but the manifest, as a place for what a worker reads.
absl::Status BeginFetched(const OtherDisks& disks, uint64_t step, uint64_t manifest_sum,
                          const std::string& folder);

}  // namespace tessera

#endif  // TESSERA_COMMON_STORE_OWN_DISKS_H_

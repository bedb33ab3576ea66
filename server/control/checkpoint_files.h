// The files of one checkpoint, as servers and workers say that they have written them.
#ifndef TESSERA_SERVER_CONTROL_CHECKPOINT_FILES_H_
#define TESSERA_SERVER_CONTROL_CHECKPOINT_FILES_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/checkpoint/manifest.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"

namespace tessera {

class CheckpointFiles {
 public:
  // `facts` outlives it.
  explicit CheckpointFiles(const JobFacts& facts) : facts_(facts) {}

  // Another checkpoint begins: it has no files.
  void Begin(absl::Time now);
  void AddPart(ShardId server, const v1::CheckpointPart& part, absl::Time now);
  void AddFile(const MemberRecord& member, const v1::SavedRequest& request);

  // No server has made its copy yet, as far as is known.
  bool IsUntouched() const { return parts_.empty() && saved_.empty(); }
  bool HasPartOf(ShardId server) const { return parts_.count(server) > 0; }
  bool HasAllParts() const { return static_cast<int>(parts_.size()) == facts_.servers; }
  bool HasFileOf(const MemberRecord& member) const { return FileOf(member) != nullptr; }
  // Some worker has written a file. Without one nobody can say at which step the checkpoint is.
  bool has_workers() const { return !saved_.empty(); }

  // The furthest and the least step that workers' files are of: members that advance on their own are at different
  // steps. There is a worker's file.
  uint64_t step() const;
  uint64_t step_least() const;
  // An evaluation is due at that step.
  bool evaluation_due() const;
  // The next exchange is of all entries, in a job that trains subnets before it.
  bool whole_next() const;
  // The moment that the values are of, or the last that is known to lie before it.
  absl::Time copied_at() const { return copied_at_; }
  // What the member had trained on there; nullopt: it has no file in it.
  std::optional<uint64_t> ExamplesOf(const MemberRecord& member) const;

  // Adds members, shards and files to a manifest. `after`: the exchange that was agreed on; 0: none.
  void Fill(Exchange after, bool whole_next, Manifest* manifest) const;

  void Save(v1::CheckpointsState* state) const;
  //   kInvalidArgument  there is no such server
  absl::Status Load(const v1::CheckpointsState& state);

 private:
  struct Saved {
    MemberId member;
    v1::SavedRequest request;
  };

  // nullptr: the member has written none.
  const v1::SavedRequest* FileOf(const MemberRecord& member) const;

  const JobFacts& facts_;
  std::map<ShardId, v1::CheckpointPart> parts_;
  std::map<Rank, Saved> saved_;
  absl::Time copied_at_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_CHECKPOINT_FILES_H_

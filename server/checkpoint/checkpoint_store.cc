#include "server/checkpoint/checkpoint_store.h"

#include "common/config/checkpoint_keys.h"
#include "server/checkpoint/own_disks_store.h"
#include "server/checkpoint/shared_folder_store.h"

namespace tessera {

std::unique_ptr<CheckpointStore> MakeCheckpointStore(const v1::Job& job, int rank,
                                                     const std::string& job_digest,
                                                     const Manifest& model) {
  if (HasOwnDisks(job)) return std::make_unique<OwnDisksStore>(job, rank, job_digest, model);
  return std::make_unique<SharedFolderStore>(job.checkpoint());
}

}  // namespace tessera

// The sites of a job with `placement: replicated`: a server that holds all entries, and the worker of its rank beside
// it. Sites come and go while the job runs; one that comes copies the parameters of another one first.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_REPLICATED_SITES_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_REPLICATED_SITES_H_

#include <cstdint>
#include <optional>

#include "common/base/ids.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"
#include "server/control/members/server_outbox.h"
#include "server/control/members/server_table.h"

namespace tessera {

// Pure answers over the tables; where servers have shards of the model there are no sites.
class ReplicatedSites {
 public:
  // All outlive it.
  ReplicatedSites(const JobFacts& facts, const ServerTable& servers, const MemberTable& members,
                  ServerOutbox* outbox)
      : facts_(facts), servers_(servers), members_(members), outbox_(*outbox) {}

  // The server that `server` is to copy: the next one in a ring that has all, so that those who come together do not
  // all ask the same one. nullopt: `server` has all itself, or nobody has.
  std::optional<ShardId> DonorFor(ShardId server) const;
  // Tells every server that awaits a copy whom to ask.
  void OrderCopies();
  // Another server has all that `server` has.
  bool HasAnother(ShardId server) const;
  // The member can be admitted, now or once the server beside it has its copy. False: nobody has started that server,
  // or nobody is left to copy. Always true where servers have shards.
  bool MayBegin(const MemberRecord& member) const;
  // The lowest rank whose server is here and has no worker: it is for a worker that comes while the job runs.
  std::optional<uint32_t> FreeRank() const;

 private:
  const JobFacts& facts_;
  const ServerTable& servers_;
  const MemberTable& members_;
  ServerOutbox& outbox_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_REPLICATED_SITES_H_

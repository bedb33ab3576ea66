#include "worker/moved_shards.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

void LogMovedShards(const v1::ServerList& before, const v1::ServerList& now) {
  for (const v1::ServerEntry& entry : now.servers()) {
    for (const v1::ServerEntry& old : before.servers()) {
      if (old.rank() != entry.rank() || old.address() == entry.address()) continue;
      Log(LogLevel::kInfo,
          absl::StrCat("worker: shard moved shard=", entry.rank(), " to=", entry.address()));
    }
  }
}

}  // namespace tessera

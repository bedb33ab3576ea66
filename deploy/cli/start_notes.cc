#include "deploy/cli/start_notes.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
#include "common/rpc/security.h"

namespace tessera {
namespace {

using Notes = std::vector<std::string>;

// `tessera run` has its servers on loopback, whatever the job lists.
void OnServers(const v1::Job& job, Notes* notes) {
  Notes bare;
  absl::Status why;
  for (const std::string& address : job.cluster().servers().addresses()) {
    const absl::Status refused = CheckListen(address, job.security());
    if (refused.ok()) continue;
    if (IsExposed(address, job.security())) {
      bare.push_back(address);
    } else {
      why = refused;
    }
  }
  if (!bare.empty()) {
    notes->push_back(absl::StrCat("cluster.servers: a server at ", absl::StrJoin(bare, " or "),
                                  " ends at once with 2, as other machines can reach it and the "
                                  "job has no security. ",
                                  kSecurityAdvice));
  }
  if (!why.ok()) {
    notes->push_back(absl::StrCat("cluster.servers: a server with this file ends at once with 2: ",
                                  why.message()));
  }
}

// Notes what a start would refuse in the files under `security`.
void OnSecurity(const v1::Job& job, Notes* notes) {
  const absl::Status loaded = Security::Load(FilesOf(job.security())).status();
  if (loaded.ok()) return;
  notes->push_back(absl::StrCat(loaded.message(), "; a program that is started here ends with 2"));
}

// Notes what a linear worker will ask for when it starts (worker/layer_door.cc).
void OnLinearWorkers(const v1::Job& job, const Recipe& recipe, Notes* notes) {
  if (!recipe.split) return;
  for (const std::string& address : job.cluster().servers().addresses()) {
    if (IsLoopback(address)) continue;
    notes->push_back(absl::StrCat(
        "method.", recipe.name, ": workers from rank ", recipe.split->front_workers,
        " on, and those without --rank, want --listen HOST:PORT of their machine, as servers are "
        "on others: without it they end with 2"));
    return;
  }
}

}  // namespace

std::vector<std::string> StartNotesOn(const v1::Job& job, const Recipe& recipe) {
  Notes notes;
  OnServers(job, &notes);
  OnSecurity(job, &notes);
  OnLinearWorkers(job, recipe, &notes);
  return notes;
}

}  // namespace tessera

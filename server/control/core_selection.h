// The coordinator's part in cores: what it asks servers when they select one, and for whom they wait.
#ifndef TESSERA_SERVER_CONTROL_CORE_SELECTION_H_
#define TESSERA_SERVER_CONTROL_CORE_SELECTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/server_outbox.h"
#include "server/core/core_agreement.h"

namespace tessera {

// Without effect in a job whose exchanges move no core.
class CoreSelection {
 public:
  // `facts` outlives it.
  explicit CoreSelection(const JobFacts& facts) : facts_(facts) { Begin(); }

  // The job begins, or goes back: servers select anew what they have selected since.
  void Begin();
  void OnReport(ShardId server, const v1::CoreReport& report);
  // Servers that the others wait for ("server 1 to select the core").
  std::vector<std::string> WaitingFor() const;
  // Questions for servers, behind what else they are told.
  void TakeQuestions(std::vector<Outgoing>* outbox);

  uint64_t changes() const { return changes_ + (agreement_ ? agreement_->changes() : 0); }
  void Save(v1::CoordinatorState* state) const;
  //   kInvalidArgument  it is of a job of the other kind, or see CoreAgreement
  absl::Status Load(const v1::CoordinatorState& state);

 private:
  const JobFacts& facts_;
  std::optional<CoreAgreement> agreement_;
  std::vector<Outgoing> questions_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_CORE_SELECTION_H_

// How all servers come to promise the same exchange.
//
//   1. The coordinator proposes exchange x under a number of its own.
//   2. Each server answers with x, or with a later exchange when x has passed there. One that
//      promised x commits nothing of it until it hears the outcome.
//   3. All answered x: agreed. Otherwise a later exchange than any answer is proposed under a new
//      number.
//
// The margin doubles with every attempt, so that a fast job on slow links is caught up with.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_AGREEMENT_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "proto/coordinator_state.pb.h"

namespace tessera {

class Agreement {
 public:
  Agreement(int servers, uint64_t number, Exchange proposed, uint64_t margin = 0);

  // The next attempt, under a number of its own.
  Agreement Raised(uint64_t number) const;

  enum class Outcome {
    kWaiting,  // for more answers, or the answer was to another proposal
    kRaised,   // all answered, some with a later exchange: propose Raised()
    kAgreed,   // all answered proposed()
  };
  // A repeated answer changes nothing. `promised` before proposed() counts as proposed().
  Outcome OnReply(ShardId server, uint64_t number, Exchange promised);
  // `server` is none any more: nobody waits for its answer, to this proposal or a raised one.
  Outcome Drop(ShardId server);

  uint64_t number() const { return number_; }
  Exchange proposed() const { return proposed_; }
  // Servers that have not answered.
  std::vector<ShardId> Missing() const;

  void Save(v1::OpenProposal* state) const;
  // What Save wrote, where there are `servers` of them now.
  static Agreement Load(const v1::OpenProposal& state, int servers);

 private:
  uint64_t number_;
  Exchange proposed_;
  uint64_t margin_;
  Exchange highest_;
  Outcome Conclude() const;

  std::vector<bool> answered_;
  std::vector<bool> dropped_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_AGREEMENT_H_

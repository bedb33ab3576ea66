// The coordinator's state in etcd, and whose it is:
//
//   PREFIX/coordinator      host:port of the coordinator. Bound to its lease; its create_revision names the
//                           tenure, and every write below is guarded by it: one that has been superseded can
//                           write nothing
//   PREFIX/state            "1 PIECES SLOT SUM\n", and where PIECES is 0 the state itself. Every write below is
//                           guarded by its mod_revision, too: one that was given up, and repeated, may reach
//                           etcd after later ones
//   PREFIX/state-SLOT/I     piece I of a state that does not fit into one value; SLOT is 0 and 1 by turns, so
//                           that what PREFIX/state speaks of is whole at any moment
//
// PREFIX is tessera/ and the job's digest. SUM is XXH3, hexadecimal.
#ifndef TESSERA_SERVER_ELECTION_ETCD_STORE_H_
#define TESSERA_SERVER_ELECTION_ETCD_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/etcd/etcd_client.h"
#include "server/control/state_store.h"

namespace tessera {

// A value that etcd takes with room to spare: its limit is 1.5 MiB for a request.
constexpr size_t kEtcdPieceBytes = size_t{1} << 20;
// The most bytes of a state. More is refused: etcd is not made for it.
constexpr size_t kEtcdStateBytesMax = size_t{64} << 20;

class EtcdStore final : public StateStore {
 public:
  // The store of one coordinator, whose election `revision` names. `held_until` is asked by any thread. Both outlive
  // it.
  EtcdStore(EtcdClient* etcd, std::string prefix, int64_t revision,
            std::function<absl::Time()> held_until);

  // What was written last, by whomever; nullopt: nothing.
  //   kDataLoss  it is not what was written
  absl::StatusOr<std::optional<v1::CoordinatorState>> Read();
  // Tries until it is held no longer.
  //   kAborted            another one has taken over
  //   kResourceExhausted  the state is too large
  //   kUnavailable        etcd did not answer in time
  absl::Status Write(const v1::CoordinatorState& state) override;
  bool IsHeld(absl::Time now) const override { return now < held_until_(); }
  std::string Describe() const override;

 private:
  absl::Status Commit(std::pair<std::string, std::string> put);
  std::string StateKey() const { return prefix_ + "/state"; }

  EtcdClient* const etcd_;
  const std::string prefix_;
  const int64_t revision_;
  const std::function<absl::Time()> held_until_;
  uint32_t slot_ = 0;  // of the last state in pieces
  std::optional<int64_t>
      written_;  // the mod_revision of the state's key, 0: it is not there; once it is known
};

}  // namespace tessera

#endif  // TESSERA_SERVER_ELECTION_ETCD_STORE_H_

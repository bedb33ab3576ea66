// What was done to a simulated job: why it may lose members and fail. Nothing else may end any of them.
#ifndef TESSERA_TESTS_SIM_HARM_H_
#define TESSERA_TESTS_SIM_HARM_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/sim/faulty_network.h"

namespace tessera {

class Harm {
 public:
  // --- workers, by their nodes ---

  // Its process died, stood still or was cut off: it may fall silent.
  void OnSilenced(NodeId worker) { silenced_.insert(worker); }
  // Its training stands still.
  void OnHung(NodeId worker) { hung_.insert(worker); }
  bool MayBeSilent(NodeId worker) const { return silenced_.count(worker) > 0; }
  bool MayHang(NodeId worker) const { return hung_.count(worker) > 0; }

  // --- servers, by their ranks ---

  // Its process ended; another one may come.
  void OnKilled(uint32_t server) { killed_.insert(server); }
  // A host of shards is gone, or can for so long not be reached by the coordinator or by other hosts. `is_spare`:
  // each shard that it led had a standby then.
  void OnHostGone(uint32_t host, absl::Time now, absl::Duration lasts, bool is_spare);

  // For so long what a host leads may have no standby, though the coordinator thinks that it has.
  void OnLogBroken(absl::Time now, absl::Duration lasts) {
    outages_.push_back({kNoHost, now, now + lasts, /*is_spare=*/true});
  }

  // --- the job ---

  void OnDrained() { is_drained_ = true; }
  bool is_drained() const { return is_drained_; }
  void OnDiskFails() { disk_fails_ = true; }

  // What is known of the job when it fails.
  struct Facts {
    bool keeps_standbys = false;
    // A checkpoint is whole, and the coordinator knows.
    bool can_go_back = false;
    uint64_t rollbacks = 0;
    // A server was told what the coordinator does not know any more.
    bool has_told_unkept = false;
    // Servers from which nothing has come for a lease.
    std::set<uint32_t> silent;
  };
  // Whether the job may have failed with this message; if not, why it may not.
  std::optional<std::string> Objection(absl::string_view message, const Facts& facts,
                                       absl::Duration lease) const;

 private:
  static constexpr uint32_t kNoHost = ~0u;

  struct Outage {
    uint32_t host = 0;
    absl::Time begin;
    absl::Time end;
    bool is_spare = false;
  };

  // Some shard may have been nobody's: its leader was alone, or was gone together with another host.
  bool MayLoseShard(absl::Duration lease) const;

  std::set<NodeId> silenced_;
  std::set<NodeId> hung_;
  std::set<uint32_t> killed_;
  std::vector<Outage> outages_;
  bool is_drained_ = false;
  bool disk_fails_ = false;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_HARM_H_

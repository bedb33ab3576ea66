#include "tests/sim/harm.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

// Until others have found out, one of them leads, and it has a standby in its turn.
constexpr int kRecoveryLeases = 3;

// Of "server <rank>..."; nullopt: it is not of a server.
std::optional<uint32_t> ServerIn(absl::string_view message) {
  constexpr absl::string_view kServer = "server ";
  uint32_t rank = 0;
  if (!absl::StartsWith(message, kServer)) return std::nullopt;
  const absl::string_view rest = message.substr(kServer.size());
  if (!absl::SimpleAtoi(rest.substr(0, rest.find_first_not_of("0123456789")), &rank)) {
    return std::nullopt;
  }
  return rank;
}

}  // namespace

void Harm::OnHostGone(uint32_t host, absl::Time now, absl::Duration lasts, bool is_spare) {
  outages_.push_back({host, now, now + lasts, is_spare});
}

bool Harm::MayLoseShard(absl::Duration lease) const {
  for (const Outage& outage : outages_) {
    if (!outage.is_spare) return true;
    for (const Outage& other : outages_) {
      if (other.host == outage.host) continue;
      const bool is_together = other.begin < outage.end + kRecoveryLeases * lease &&
                               outage.begin < other.end + kRecoveryLeases * lease;
      if (is_together) return true;
    }
  }
  return false;
}

std::optional<std::string> Harm::Objection(absl::string_view message, const Facts& facts,
                                           absl::Duration lease) const {
  const auto because = [&message](absl::string_view why) {
    return absl::StrCat("the job failed with \"", message, "\": ", why);
  };
  const bool is_server_gone = absl::StrContains(message, " is gone: ");
  const std::optional<uint32_t> server = ServerIn(message);
  // Of members, each loss is judged by itself.
  if (absl::StartsWith(message, "all workers are gone")) return std::nullopt;
  if (absl::StrContains(message, "was told what the coordinator had not kept")) {
    if (facts.has_told_unkept) return std::nullopt;
    return because("the coordinator has told nothing that it had not kept");
  }
  if (absl::StrContains(message, "it was drained while it went back")) {
    if (is_drained_ && facts.rollbacks > 0) return std::nullopt;
    return because("it was not drained, or did not go back");
  }
  if (absl::StrContains(message, "the disk cannot be read")) {
    if (disk_fails_ && facts.rollbacks > 0) return std::nullopt;
    return because("no disk has failed, or nobody read");
  }
  if (!server) return because("there is no such reason");
  if (is_server_gone && facts.can_go_back) {
    return because("there is a checkpoint to go back to");
  }
  if (facts.keeps_standbys) {
    if (MayLoseShard(lease)) return std::nullopt;
    return because("the server was up, or another one had all that it had");
  }
  if (absl::StrContains(message, "it was restarted at")) {
    if (killed_.count(*server) > 0) return std::nullopt;
    return because("the server was not restarted");
  }
  if (is_server_gone || absl::StrContains(message, "was gone when the job was to end")) {
    if (facts.silent.count(*server) > 0 || killed_.count(*server) > 0) return std::nullopt;
    return because("the server was heard");
  }
  return because("there is no such reason");
}

}  // namespace tessera

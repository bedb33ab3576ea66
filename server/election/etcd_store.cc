#include "server/election/etcd_store.h"

#include <xxhash.h>

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// Between attempts at an etcd that does not answer.
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
constexpr uint32_t kPiecesMax = kEtcdStateBytesMax / kEtcdPieceBytes;

std::string SumOf(absl::string_view bytes) {
  return absl::StrFormat("%016x", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace

// `revision` is that of the leader's key: every write is made only while that key is still this server's.
EtcdStore::EtcdStore(EtcdClient* etcd, std::string prefix, int64_t revision,
                     std::function<absl::Time()> held_until)
    : etcd_(etcd),
      prefix_(std::move(prefix)),
      revision_(revision),
      held_until_(std::move(held_until)) {}

absl::StatusOr<std::optional<v1::CoordinatorState>> EtcdStore::Read() {
  // The head names the pieces; both are read without a transaction, and the sum shows whether they belong together.
  TESSERA_ASSIGN_OR_RETURN(const std::optional<EtcdValue> head, etcd_->Get(StateKey()));
  written_ = head ? head->mod_revision : 0;
  if (!head) return std::nullopt;
  const absl::Status broken = absl::DataLossError(absl::StrCat(
      "etcd: \"", prefix_, "/state\" is not what was written; remove it to begin the job anew"));
  const size_t end = head->value.find('\n');
  if (end == std::string::npos) return broken;
  const std::vector<std::string> words = absl::StrSplit(head->value.substr(0, end), ' ');
  uint32_t pieces = 0, slot = 0;
  if (words.size() != 4 || words[0] != "1" || !absl::SimpleAtoi(words[1], &pieces) ||
      !absl::SimpleAtoi(words[2], &slot) || pieces > kPiecesMax || slot > 1) {
    return broken;
  }
  std::string bytes = head->value.substr(end + 1);
  for (uint32_t i = 0; i < pieces; ++i) {
    TESSERA_ASSIGN_OR_RETURN(const std::optional<EtcdValue> piece,
                             etcd_->Get(absl::StrCat(prefix_, "/state-", slot, "/", i)));
    if (!piece) return broken;
    bytes += piece->value;
  }
  v1::CoordinatorState state;
  if (SumOf(bytes) != words[3] || !state.ParseFromString(bytes)) return broken;
  slot_ = slot;
  return state;
}

absl::Status EtcdStore::Commit(std::pair<std::string, std::string> put) {
  EtcdTransaction transaction;
  transaction.guard = prefix_ + "/coordinator";
  transaction.guard_revision = revision_;
  // Two coordinators that both believe to lead cannot both write: the state's key must be as this one left it.
  transaction.unchanged = StateKey();
  transaction.puts.push_back(std::move(put));
  const auto& [key, value] = transaction.puts[0];
  for (; IsHeld(SteadyNow()); absl::SleepFor(kRetryPause)) {
    absl::Status failed;
    // After an attempt without an answer it is not known which write came to pass.
    if (!written_) {
      const absl::StatusOr<std::optional<EtcdValue>> head = etcd_->Get(StateKey());
      failed = head.status();
      if (head.ok()) written_ = *head ? (*head)->mod_revision : 0;
    }
    if (failed.ok()) {
      transaction.unchanged_revision = *written_;
      const absl::StatusOr<EtcdOutcome> outcome = etcd_->Commit(transaction);
      failed = outcome.status();
      if (outcome.ok() && outcome->done) {
        if (key == StateKey()) written_ = outcome->revision;
        return absl::OkStatus();
      }
      if (outcome.ok()) {
        // The key is another server's, or gone: nothing of this write was done.
        if (!outcome->guard || outcome->guard->create_revision != revision_) {
          return absl::AbortedError(
              absl::StrCat("another server has taken over",
                           outcome->guard ? absl::StrCat(" at ", ToPrintable(outcome->guard->value))
                                          : std::string()));
        }
        // An earlier attempt came to pass, whose answer did not come: perhaps of this very write.
        written_ = outcome->unchanged ? outcome->unchanged->mod_revision : 0;
        const bool is_this =
            key == StateKey() && outcome->unchanged && outcome->unchanged->value == value;
        if (is_this) return absl::OkStatus();
        continue;
      }
    }
    if (!absl::IsUnavailable(failed) && !absl::IsDeadlineExceeded(failed)) return failed;
  }
  return absl::UnavailableError("etcd has not answered for as long as the lease lasts");
}

absl::Status EtcdStore::Write(const v1::CoordinatorState& state) {
  const std::string bytes = state.SerializeAsString();
  if (bytes.size() > kEtcdStateBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("its state is ", bytes.size(), " bytes, want at most ", kEtcdStateBytesMax));
  }
  const std::string sum = SumOf(bytes);
  // A small state is one value, and takes one round trip.
  if (bytes.size() <= kEtcdPieceBytes) {
    return Commit({StateKey(), absl::StrCat("1 0 0 ", sum, "\n", bytes)});
  }
  // Pieces of the new state go to the other slot, so that the old one stays whole until the head names the new one.
  const uint32_t slot = 1 - slot_;
  uint32_t pieces = 0;
  for (size_t at = 0; at < bytes.size(); at += kEtcdPieceBytes, ++pieces) {
    TESSERA_RETURN_IF_ERROR(Commit(
        {absl::StrCat(prefix_, "/state-", slot, "/", pieces), bytes.substr(at, kEtcdPieceBytes)}));
  }
  TESSERA_RETURN_IF_ERROR(
      Commit({StateKey(), absl::StrCat("1 ", pieces, " ", slot, " ", sum, "\n")}));
  slot_ = slot;
  return absl::OkStatus();
}

std::string EtcdStore::Describe() const { return absl::StrCat("etcd at ", etcd_->member()); }

}  // namespace tessera

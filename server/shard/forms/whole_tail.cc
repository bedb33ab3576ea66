#include "server/shard/forms/whole_tail.h"

#include "absl/strings/str_cat.h"
#include "common/keyset/named_keys.h"

namespace tessera {
namespace {

const char* Word(bool is_whole) {
  return KeysWord(is_whole ? NamedKeys(AllEntries()) : NamedKeys(SubnetPlace()));
}

}  // namespace

absl::Status WholeTail::Check(absl::string_view where, const Push& push) const {
  // The first push of an exchange decides for all others of it.
  const bool is_first = last_.exchange != push.exchange;
  const bool wants_whole = is_first ? IsWhole(push.exchange) : last_.is_whole;
  // The first one may be of all entries before this server has heard of it: then those who said so
  // here are gone, and the sender was told by another server.
  if (push.is_whole != wants_whole && !(is_first && push.is_whole)) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": keys are ", Word(push.is_whole), ", want ", Word(wants_whole),
                     " as the other pushes have",
                     wants_whole ? absl::StrCat(" since exchange ", whole_from_.value()) : ""));
  }
  if (is_first || push.is_whole_next == last_.is_whole_next) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(where, ": keys of its next push are to be ", Word(push.is_whole_next), ", want ",
                   Word(last_.is_whole_next), " as the other pushes of exchange ",
                   push.exchange.value(), " say"));
}

void WholeTail::Take(const Push& push) {
  last_ = push;
  // Only the first word about the tail counts: it never moves.
  if (whole_from_ != Exchange(0)) return;
  if (push.is_whole) {
    whole_from_ = push.exchange;
  } else if (push.is_whole_next) {
    whole_from_ = push.exchange.Next();
  }
}

}  // namespace tessera

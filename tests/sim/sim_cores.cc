// What a simulated worker does where exchanges move a core and an explorer: worker/exchange's keys, and the
// order in which worker/train asks for cores and takes them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/keyset/entry_keys.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/sim/sim_worker.h"

namespace tessera {

void SimWorker::BeginKeys(Rank rank) {
  rank_ = rank;
  ExchangeKeys::Options keys;
  keys.shape = *options_.shape;
  keys.servers = static_cast<int>(doors_.size());
  keys.share = *options_.core;
  keys.seed = options_.job_seed;
  keys.rank = rank;
  keys.first = exchange_.Next();
  keys.lockstep = options_.lockstep;
  keys_ = std::make_unique<ExchangeKeys>(keys);
}

void SimWorker::AskCores() {
  if (cores_due_) return;
  keys_->Tell(cores_told_);
  const std::optional<uint64_t> wanted = keys_->wanted();
  if (!wanted.has_value()) return;
  cores_due_ = true;
  cores_.assign(doors_.size(), nullptr);
  cores_missing_ = doors_.size();
  for (size_t server = 0; server < doors_.size(); ++server) {
    CallShard<std::shared_ptr<const Core>>(
        server, CallKind::kOther,
        [member = member_, number = *wanted](SimServer* from, auto answer) {
          from->ReadCore(member, number, answer);
        },
        [this, server](absl::StatusOr<std::shared_ptr<const Core>> core) {
          if (!core.ok()) return GiveUp(core.status());
          cores_[server] = *std::move(core);
          if (--cores_missing_ > 0 || !take_cores_) return;
          std::exchange(take_cores_, nullptr)();
        });
  }
}

void SimWorker::TakeCores(std::function<void()> then) {
  if (!cores_due_) return then();
  doing_ = absl::StrCat("waiting for the core of exchange ", exchange_.value() + 1);
  const auto adopt = [this, then = std::move(then)] {
    cores_due_ = false;
    keys_->Adopt(cores_);
    then();
  };
  if (cores_missing_ == 0) return adopt();
  take_cores_ = adopt;
}

// The first attempt of a push names its core, as the servers know it; some bring its keys as well.
std::function<ReceivedPush()> SimWorker::SparsePush(size_t server) {
  const KeySet& keys = keys_->update_keys();
  const SparseKeys* const sparse = keys.is_sparse() ? keys.sparse[server].get() : nullptr;
  NamedKeys named = AllEntries();
  if (sparse != nullptr) {
    NamedCore core{sparse->core->name, 0, std::nullopt};
    if (network_->dice().Chance(0.2)) {
      const EncodedKeys encoded = EncodeKeys(sparse->core->keys);
      core.key_form = static_cast<int>(encoded.form);
      core.keys = encoded.bytes;
    }
    named = std::move(core);
  }
  return [push = MakePush(server), named = std::move(named)] {
    ReceivedPush made = push();
    made.keys = named;
    return made;
  };
}

std::function<ReceivedPush()> SimWorker::WithKeys(size_t server,
                                                  const std::function<ReceivedPush()>& push) {
  const ReceivedPush asked = push();
  const auto* const named = std::get_if<NamedCore>(&asked.keys);
  if (options_.lockstep || named == nullptr || named->keys) {
    checker_->Violate(absl::StrCat("member ", member_.value(), ": server ", server,
                                   " asks for the keys of a core that is in force"));
  }
  return [push, keys = EncodeKeys(keys_->update_keys().sparse[server]->core->keys)] {
    ReceivedPush made = push();
    auto& core = std::get<NamedCore>(made.keys);
    core.key_form = static_cast<int>(keys.form);
    core.keys = keys.bytes;
    return made;
  };
}

void SimWorker::ForgeSparse(size_t server, const std::function<ReceivedPush()>& right) {
  if (!network_->dice().Chance(0.15)) return;
  ReceivedPush push = right();
  // A core that nobody knows, by its name; the same with keys that are not those of the name; a core of
  // another exchange; a core's entries where all are wanted.
  const uint64_t what = network_->dice().Below(3);
  const auto* const named = std::get_if<NamedCore>(&push.keys);
  const bool asks = what == 0 && named != nullptr && !named->keys;
  const std::string keys = EncodeKeys(EntrySet::All(options_.slices[server].size)).bytes;
  NamedCore core = named != nullptr ? *named : NamedCore{{7, {1, 2}}, 0, keys};
  if (named != nullptr && what == 2) {
    core.name.number += 1000;
  } else if (named != nullptr) {
    core.name.signature.low ^= 1;
    if (what == 1) core.keys = keys;
  }
  const auto forged = [right, core] {
    ReceivedPush made = right();
    made.keys = core;
    return made;
  };
  ShardDoor* const door = doors_[server];
  network_->Call<absl::StatusOr<PushAccepted>>(
      node_, door->node(),
      [door, forged, shard = ShardId(server)](auto answer) {
        if (SimServer* const to = door->Find(shard)) to->Push(forged, answer);
      },
      [this, asks, what](std::optional<absl::StatusOr<PushAccepted>> answer) {
        if (!answer.has_value() || !answer->ok() || (*answer)->duplicate) return;
        if (asks && (*answer)->need_keys) return;
        checker_->Violate(absl::StrCat(
            "member ", member_.value(), ": a push of other entries than its own (kind ", what,
            ") was ", (*answer)->need_keys ? "asked for keys" : "accepted"));
      });
}

// False: a server did not know the core, and all entries are pulled.
bool SimWorker::FollowKeys() {
  if (needs_all_) {
    needs_all_ = false;
    keys_->Drop();
    parts_missing_ = doors_.size();
    for (size_t server = 0; server < doors_.size(); ++server) {
      PullFrom(server, exchange_, IdleNotice());
    }
    return false;
  }
  if (has_pulled_) keys_->Advance();
  if (!has_pulled_ || !Finished()) AskCores();
  return true;
}

}  // namespace tessera

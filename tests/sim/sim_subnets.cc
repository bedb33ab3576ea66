// What a simulated worker does where exchanges are rounds of subnets: worker/replica's keys, and
// worker/train's way with a round that is cut otherwise than it thought.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/sim/sim_worker.h"

namespace tessera {
namespace {

// As worker/train/train_loop.cc has it.
constexpr int kRecutsMax = 10;

}  // namespace

// The guess is that only those who began the job are sites.
void SimWorker::ExpectFirst(const v1::JoinReply& admission) {
  next_.seed = options_.subnets->seed();
  next_.round = admission.first_exchange();
  next_.site = admission.rank();
  next_.shares.assign(std::max(options_.sites, admission.rank() + 1), 1);
}

void SimWorker::FetchAll(bool waits_only) {
  recut_.reset();
  parts_missing_ = doors_.size();
  for (size_t server = 0; server < doors_.size(); ++server) FetchFrom(server, waits_only);
}

void SimWorker::FetchFrom(size_t server, bool waits_only) {
  CallShard<PulledValues>(
      server, CallKind::kPull,
      [member = member_, asked = next_, waits_only](SimServer* from, auto answer) {
        from->Fetch(member, asked, waits_only, answer);
      },
      [this, server, waits_only](absl::StatusOr<PulledValues> fetched) {
        if (!fetched.ok()) return GiveUp(fetched.status());
        OnFetched(server, waits_only, *fetched);
        OnPart();
      });
}

void SimWorker::OnFetched(size_t server, bool waits_only, const PulledValues& fetched) {
  bases_[server] = fetched.version;
  known_[server] = fetched.known;
  Hear(fetched.checkpoint);
  if (fetched.place->round != next_.round || fetched.place->seed != next_.seed) {
    checker_->Violate(absl::StrCat("member ", member_.value(), ": fetched round ", next_.round,
                                   ", was answered with round ", fetched.place->round));
  }
  // Nothing is fetched after the last round, however the next would be cut.
  if (waits_only) return;
  if (!(*fetched.place == next_)) {
    recut_ = fetched.place;
    return;
  }
  const KeySet keys = options_.subnets->SiteOf(next_).keys;
  const auto size = static_cast<size_t>(keys.slices[server].size);
  if (fetched.values.size() != size) {
    checker_->Violate(absl::StrCat("member ", member_.value(), ": server ", server, " sent ",
                                   fetched.values.size(), " values, want ", size));
  }
}

bool SimWorker::FollowCut() {
  if (recut_.has_value()) {
    checker_->OnRecut();
    if (++recuts_ > kRecutsMax) {
      checker_->Violate(absl::StrCat("member ", member_.value(), ": round ", next_.round,
                                     " is cut otherwise again and again"));
      return false;
    }
    next_ = *recut_;
    FetchAll(/*waits_only=*/false);
    return false;
  }
  recuts_ = 0;
  trained_ = next_;
  ++next_.round;
  return true;
}

std::function<ReceivedPush()> SimWorker::SubnetPush(size_t server) const {
  return [push = MakePush(server), place = *trained_] {
    ReceivedPush made = push();
    made.keys = place;
    return made;
  };
}

void SimWorker::Forge(size_t server) {
  if (!network_->dice().Chance(0.1)) return;
  ShardDoor* const door = doors_[server];
  SubnetPlace place = *trained_;
  switch (network_->dice().Below(3)) {
    case 0:
      place.shares.push_back(1);
      break;
    case 1:
      ++place.round;
      break;
    case 2:
      place.site = place.sites() - 1 - place.site;
      break;
  }
  if (!(place == *trained_)) {
    const auto forged = [right = SubnetPush(server), place] {
      ReceivedPush push = right();
      push.keys = place;
      return push;
    };
    network_->Call<absl::StatusOr<PushAccepted>>(
        node_, door->node(),
        [door, forged, shard = ShardId(server)](auto answer) {
          if (SimServer* const to = door->Find(shard)) to->Push(forged, answer);
        },
        [this, place](std::optional<absl::StatusOr<PushAccepted>> answer) {
          // After the right one it is a repeated push, which is dropped.
          if (!answer.has_value() || !answer->ok() || (*answer)->duplicate) return;
          checker_->Violate(absl::StrCat("member ", member_.value(), ": a push of round ",
                                         place.round, " as site ", place.site, " of ",
                                         place.sites(), " was accepted"));
        });
  }
  if (trained_->round < 2) return;
  SubnetPlace past = *trained_;
  --past.round;
  network_->Call<absl::StatusOr<PulledValues>>(
      node_, door->node(),
      [door, past, member = member_, shard = ShardId(server)](auto answer) {
        if (SimServer* const to = door->Find(shard)) to->Fetch(member, past, false, answer);
      },
      [this, past](std::optional<absl::StatusOr<PulledValues>> answer) {
        if (!answer.has_value() || absl::IsFailedPrecondition(answer->status())) return;
        checker_->Violate(absl::StrCat("member ", member_.value(), ": round ", past.round,
                                       " is over, and its fetch was not refused"));
      });
}

}  // namespace tessera

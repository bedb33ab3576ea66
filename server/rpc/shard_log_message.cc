#include "server/rpc/shard_log_message.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/key_set_message.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

// Takes `bytes` off the front.
std::string TakeFront(Payload* payload, int64_t bytes) {
  std::string front;
  const auto owner = std::make_shared<const Payload>(std::move(*payload));
  Payload rest;
  // Nothing of the rest is copied: its pieces go on pointing into the payload that was there before.
  for (const Payload::Piece& piece : owner->pieces()) {
    const int64_t taken = std::min(piece.size, bytes - static_cast<int64_t>(front.size()));
    front.append(piece.data, static_cast<size_t>(taken));
    rest.Append({piece.data + taken, piece.size - taken}, owner);
  }
  *payload = std::move(rest);
  return front;
}

v1::LoggedPush ToMessage(ReceivedPush push, Payload* payload) {
  v1::LoggedPush message;
  v1::PushHeader& header = *message.mutable_header();
  header.mutable_caller()->set_member(push.member.value());
  header.mutable_caller()->set_generation(push.generation.value());
  header.set_exchange(push.exchange.value());
  header.set_base_version(push.base.value());
  header.set_kind(static_cast<v1::PayloadKind>(push.kind));
  header.set_layout_hash(push.layout_hash);
  header.set_examples(push.examples);
  header.set_whole_next(push.whole_next);
  header.set_from_peer(push.from_peer);
  // A push in the job's own codec names none, and the reader takes its own.
  if (push.codec != Codec()) header.set_codec(push.codec->name());
  // A log says nothing of all entries.
  if (!std::holds_alternative<AllEntries>(push.keys)) {
    *header.mutable_keys() = tessera::ToMessage(push.keys);
  }
  // Only a push of layers may hold several pushes' sum.
  if (std::holds_alternative<ParameterRange>(push.keys)) header.set_summed(push.summed);
  // Keys of a core go in front of the push's values, as they came.
  if (auto* core = std::get_if<NamedCore>(&push.keys); core != nullptr && core->keys) {
    const auto bytes = std::make_shared<const std::string>(*std::move(core->keys));
    payload->Append({bytes->data(), static_cast<int64_t>(bytes->size())}, bytes);
  }
  message.set_bad_entry(push.bad_entry);
  // The order of the payload is the reader's: keys first, then values.
  const auto values = std::make_shared<const Payload>(std::move(push.payload));
  for (const Payload::Piece& piece : values->pieces()) payload->Append(piece, values);
  return message;
}

absl::StatusOr<ReceivedPush> FromMessage(const v1::LoggedPush& message, Payload payload,
                                         const Codec& own) {
  const v1::PushHeader& header = message.header();
  ReceivedPush push;
  push.member = MemberId(header.caller().member());
  push.generation = Generation(header.caller().generation());
  push.exchange = Exchange(header.exchange());
  push.base = Version(header.base_version());
  push.kind = header.kind();
  push.layout_hash = header.layout_hash();
  push.examples = header.examples();
  push.whole_next = header.whole_next();
  push.from_peer = header.from_peer();
  TESSERA_ASSIGN_OR_RETURN(push.codec, NamedCodec(header.codec(), own));
  if (header.has_keys()) {
    TESSERA_ASSIGN_OR_RETURN(push.keys, KeysOf(header.keys()));
  }
  // The number is set for pushes of layers alone; 0 means one push.
  push.summed = std::max<uint64_t>(1, header.summed());
  if (auto* core = std::get_if<NamedCore>(&push.keys); core != nullptr && core->keys) {
    const uint64_t bytes = header.keys().sparse().keys_bytes();
    // The log comes over the network: sizes are checked though a leader has checked them.
    if (bytes > static_cast<uint64_t>(payload.size())) {
      return absl::InvalidArgumentError("push has fewer bytes than its keys");
    }
    core->keys = TakeFront(&payload, static_cast<int64_t>(bytes));
  }
  push.bad_entry = message.bad_entry();
  push.payload = std::move(payload);
  return push;
}

v1::Plan ToMessage(const Plan& plan) {
  v1::Plan message;
  message.set_generation(plan.generation.value());
  for (const PlanMember& m : plan.members) {
    v1::Member& member = *message.add_members();
    member.set_member(m.member.value());
    member.set_rank(m.rank.value());
    member.set_first_exchange(m.first_exchange.value());
  }
  for (const DepartedSite& f : plan.departed) {
    v1::DepartedSite& site = *message.add_departed_sites();
    site.set_member(f.member.value());
    site.set_rank(f.rank.value());
    site.set_first_exchange(f.first.value());
    site.set_until_exchange(f.until.value());
  }
  // Shares change with the members, and rounds that are still open need those of their own beginning.
  for (const PartShares& s : plan.shares) {
    v1::PartShares& shares = *message.add_shares();
    shares.set_first_exchange(s.first.value());
    for (const auto& [member, share] : s.of) {
      shares.add_members(member.value());
      shares.add_shares(share);
    }
  }
  return message;
}

absl::StatusOr<Plan> FromMessage(const v1::Plan& message) {
  Plan plan = ToPlan(message);
  // The plan is checked here, as everything that comes over the network is.
  TESSERA_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

v1::Proposal ToMessage(const ProposeEvent& event) {
  v1::Proposal message;
  message.set_proposal(event.proposal);
  message.mutable_member()->set_first_exchange(event.first.value());
  return message;
}

ProposeEvent FromMessage(const v1::Proposal& message) {
  return {message.proposal(), Exchange(message.member().first_exchange())};
}

v1::CheckpointOrder ToMessage(const CopyOrder& order) {
  v1::CheckpointOrder message;
  message.mutable_mark()->set_number(order.mark.number);
  message.mutable_mark()->set_folder_step(order.mark.folder_step);
  message.set_after_exchange(order.after.value());
  return message;
}

CopyOrder FromMessage(const v1::CheckpointOrder& message) {
  return {{message.mark().number(), message.mark().folder_step()},
          Exchange(message.after_exchange())};
}

v1::CoresImage ToMessage(const CoresImage& cores) {
  v1::CoresImage message;
  for (const CoresImage::Known& known : cores.known) {
    v1::SparseKeys& keys = *message.add_known();
    keys = tessera::ToMessage(known.name);
    keys.set_key_form(static_cast<uint32_t>(known.key_form));
    keys.set_keys_bytes(static_cast<uint64_t>(known.keys_bytes));
  }
  for (const MemberId member : cores.pushed_all) message.add_pushed_all(member.value());
  message.set_has_gradient(cores.has_gradient);
  message.set_weight_sum(cores.magnitudes.w);
  message.set_gradient_sum(cores.magnitudes.g);
  message.set_moved_since(cores.moved_since);
  if (!cores.selection.has_value()) return message;
  v1::CoresImage::Selection& selection = *message.mutable_selection();
  selection.set_core(cores.selection->core);
  selection.set_weight_sum(cores.selection->sums.w);
  selection.set_gradient_sum(cores.selection->sums.g);
  selection.set_has_values(cores.selection->has_values);
  selection.set_has_gradient(cores.selection->has_gradient);
  for (const CoreQuestion& question : cores.selection->questions) {
    *selection.add_questions() = tessera::ToMessage(question);
  }
  return message;
}

absl::StatusOr<CoresImage> FromMessage(const v1::CoresImage& message, int64_t bytes) {
  CoresImage cores;
  for (const v1::SparseKeys& keys : message.known()) {
    TESSERA_ASSIGN_OR_RETURN(const CoreName name, CoreOf(keys));
    // The keys of all cores lie within the image's bytes.
    if (keys.keys_bytes() > static_cast<uint64_t>(bytes)) {
      return absl::InvalidArgumentError("image has fewer bytes than its keys");
    }
    // Larger numbers than a form can have become 255, which no build knows.
    cores.known.push_back({name, static_cast<int>(std::min<uint32_t>(keys.key_form(), 255)),
                           static_cast<int64_t>(keys.keys_bytes())});
  }
  for (const uint64_t member : message.pushed_all()) cores.pushed_all.push_back(MemberId(member));
  cores.has_gradient = message.has_gradient();
  cores.magnitudes = {message.weight_sum(), message.gradient_sum()};
  cores.moved_since = message.moved_since();
  if (!message.has_selection()) return cores;
  SelectionImage& selection = cores.selection.emplace();
  // Fields of the selection follow only where one was open when the image was made.
  selection.core = message.selection().core();
  selection.sums = {message.selection().weight_sum(), message.selection().gradient_sum()};
  selection.has_values = message.selection().has_values();
  selection.has_gradient = message.selection().has_gradient();
  for (const v1::CoreQuestion& question : message.selection().questions()) {
    selection.questions.push_back(tessera::FromMessage(question));
  }
  return cores;
}

v1::ShardImage ToMessage(ImageEvent image, Payload* payload) {
  v1::ShardImage message;
  *message.mutable_plan() = ToMessage(image.plan);
  for (const ImageEvent::Member& m : image.members) {
    v1::ShardImage::MemberImage& member = *message.add_members();
    member.set_member(m.member.value());
    // A follower must know each member's last folded exchange, or it would fold a push twice.
    member.set_folded(m.folded.value());
    if (m.rests_after) member.set_rests_after(m.rests_after->value());
    member.set_rest_number(m.rest_number);
    // Policies keep a number for each member, such as its clock, beside their own.
    const auto own = image.policy.members.find(m.member);
    if (own != image.policy.members.end()) member.set_policy(own->second);
  }
  for (const ProposeEvent& open : image.proposals) *message.add_proposals() = ToMessage(open);
  message.set_examples(image.counters.examples);
  message.set_pushes(image.counters.pushes);
  for (uint64_t count : image.counters.staleness) message.add_staleness_histogram(count);
  message.set_staleness_sum(image.counters.staleness_sum);
  message.set_staleness_max(image.counters.staleness_max);
  message.set_next_exchange(image.policy.next.value());
  for (uint64_t count : image.policy.counts) message.add_policy(count);
  message.set_whole_from(image.whole_from.value());
  *message.mutable_checkpoint() = ToMessage(image.copied);
  for (const RemovedMember& r : image.removed) {
    v1::PlanApplied::Removed& removed = *message.add_removed();
    removed.set_member(r.member.value());
    removed.set_last_exchange(r.last_exchange.value());
  }
  if (image.cores) *message.mutable_cores() = ToMessage(*image.cores);
  // Values come last in the image's payload, in the order in which the form wrote them.
  *payload = std::move(image.values);
  return message;
}

absl::StatusOr<ImageEvent> FromMessage(const v1::ShardImage& message, Version version,
                                       Payload payload) {
  ImageEvent image;
  TESSERA_ASSIGN_OR_RETURN(image.plan, FromMessage(message.plan()));
  image.policy.next = Exchange(message.next_exchange());
  image.policy.counts.assign(message.policy().begin(), message.policy().end());
  for (const v1::ShardImage::MemberImage& m : message.members()) {
    const MemberId id(m.member());
    image.members.push_back({id, Exchange(m.folded()), std::nullopt, m.rest_number()});
    if (m.has_rests_after()) image.members.back().rests_after = Exchange(m.rests_after());
    image.policy.members[id] = m.policy();
  }
  for (const v1::Proposal& open : message.proposals()) {
    image.proposals.push_back(FromMessage(open));
  }
  ShardCounters& counters = image.counters;
  // An image does not repeat the version, which every entry has.
  counters.version = version;
  counters.examples = message.examples();
  counters.pushes = message.pushes();
  // Another build may have histograms of another length.
  const int kept = std::min<int>(message.staleness_histogram_size(), counters.staleness.size());
  std::copy_n(message.staleness_histogram().begin(), kept, counters.staleness.begin());
  counters.staleness_sum = message.staleness_sum();
  counters.staleness_max = message.staleness_max();
  image.whole_from = Exchange(message.whole_from());
  image.copied = FromMessage(message.checkpoint());
  for (const v1::PlanApplied::Removed& r : message.removed()) {
    image.removed.push_back({MemberId(r.member()), Exchange(r.last_exchange())});
  }
  if (message.has_cores()) {
    // The payload's size bounds the keys, which lie within it.
    TESSERA_ASSIGN_OR_RETURN(image.cores, FromMessage(message.cores(), payload.size()));
  }
  image.values = std::move(payload);
  return image;
}

}  // namespace

v1::LogEntry ToMessage(ShardEvent event, Payload* payload) {
  v1::LogEntry entry;
  // Each kind sets one field of the oneof, which is how the reader knows it again.
  if (auto* push = std::get_if<PushEvent>(&event)) {
    *entry.mutable_push() = ToMessage(std::move(push->push), payload);
  } else if (const auto* advance = std::get_if<AdvanceEvent>(&event)) {
    entry.set_advance_ns(absl::ToUnixNanos(advance->now));
  } else if (const auto* fold = std::get_if<FoldEvent>(&event)) {
    v1::LoggedFold& message = *entry.mutable_fold();
    message.set_member(fold->member.value());
    message.set_exchange(fold->exchange.value());
    message.set_base(fold->base.value());
    message.set_examples(fold->examples);
    message.set_time_ns(absl::ToUnixNanos(fold->time));
  } else if (auto* commit = std::get_if<CommitEvent>(&event)) {
    entry.mutable_commit()->set_time_ns(absl::ToUnixNanos(commit->time));
    // The folds before it were logged without their values, which are in this sum.
    *payload = std::move(commit->sum);
  } else if (const auto* plan = std::get_if<PlanEvent>(&event)) {
    *entry.mutable_plan() = ToMessage(plan->plan);
  } else if (const auto* proposal = std::get_if<ProposeEvent>(&event)) {
    *entry.mutable_propose() = ToMessage(*proposal);
  } else if (const auto* withdraw = std::get_if<WithdrawEvent>(&event)) {
    entry.set_withdraw(withdraw->proposal);
  } else if (const auto* rest = std::get_if<RestEvent>(&event)) {
    v1::LoggedRest& message = *entry.mutable_rest();
    message.set_member(rest->member.value());
    message.set_after_exchange(rest->after.value());
    message.set_number(rest->word.number);
    message.set_rests(rest->word.rests);
  } else if (const auto* core = std::get_if<CoreQuestionEvent>(&event)) {
    *entry.mutable_core_question() = ToMessage(core->question);
  } else if (const auto* copied = std::get_if<CopiedEvent>(&event)) {
    *entry.mutable_checkpoint() = ToMessage(copied->order);
  } else {
    *entry.mutable_image() = ToMessage(std::get<ImageEvent>(std::move(event)), payload);
  }
  // The values follow the entry, in chunks of their own.
  entry.set_payload_bytes(static_cast<uint64_t>(payload->size()));
  return entry;
}

absl::StatusOr<ShardEvent> FromMessage(const v1::LogEntry& entry, Payload payload,
                                       const Codec& own) {
  using Kind = v1::LogEntry::KindCase;
  switch (entry.kind_case()) {
    case Kind::kPush: {
      TESSERA_ASSIGN_OR_RETURN(ReceivedPush push,
                               FromMessage(entry.push(), std::move(payload), own));
      return ShardEvent(PushEvent{std::move(push)});
    }
    case Kind::kAdvanceNs:
      return ShardEvent(AdvanceEvent{absl::FromUnixNanos(entry.advance_ns())});
    case Kind::kFold: {
      const v1::LoggedFold& fold = entry.fold();
      return ShardEvent(FoldEvent{MemberId(fold.member()), Exchange(fold.exchange()),
                                  Version(fold.base()), fold.examples(),
                                  absl::FromUnixNanos(fold.time_ns())});
    }
    case Kind::kCommit:
      return ShardEvent(
          CommitEvent{absl::FromUnixNanos(entry.commit().time_ns()), std::move(payload)});
    case Kind::kPlan: {
      TESSERA_ASSIGN_OR_RETURN(Plan plan, FromMessage(entry.plan()));
      return ShardEvent(PlanEvent{std::move(plan)});
    }
    case Kind::kPropose:
      return ShardEvent(FromMessage(entry.propose()));
    case Kind::kWithdraw:
      return ShardEvent(WithdrawEvent{entry.withdraw()});
    case Kind::kRest: {
      const v1::LoggedRest& rest = entry.rest();
      return ShardEvent(RestEvent{
          MemberId(rest.member()), Exchange(rest.after_exchange()), {rest.number(), rest.rests()}});
    }
    case Kind::kCoreQuestion:
      return ShardEvent(CoreQuestionEvent{FromMessage(entry.core_question())});
    case Kind::kCheckpoint:
      return ShardEvent(CopiedEvent{FromMessage(entry.checkpoint())});
    case Kind::kImage: {
      TESSERA_ASSIGN_OR_RETURN(
          ImageEvent image,
          FromMessage(entry.image(), Version(entry.version()), std::move(payload)));
      return ShardEvent(std::move(image));
    }
    case Kind::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("entry is of no known kind");
}

}  // namespace tessera

#include "server/shard/shard_messages.h"

#include <algorithm>
#include <utility>

namespace tessera {

Plan ToPlan(const v1::Plan& message) {
  Plan plan;
  plan.generation = Generation(message.generation());
  for (const v1::Member& m : message.members()) {
    plan.members.push_back({MemberId(m.member()), Rank(m.rank()), Exchange(m.first_exchange())});
  }
  for (const v1::DepartedSite& m : message.departed_sites()) {
    plan.departed.push_back({MemberId(m.member()), Rank(m.rank()), Exchange(m.first_exchange()),
                             Exchange(m.until_exchange())});
  }
  for (const v1::PartShares& s : message.shares()) {
    PartShares shares;
    shares.first = Exchange(s.first_exchange());
    // The two lists have one length unless another build wrote them.
    const int count = std::min(s.members_size(), s.shares_size());
    for (int i = 0; i < count; ++i) shares.of.push_back({MemberId(s.members(i)), s.shares(i)});
    plan.shares.push_back(std::move(shares));
  }
  return plan;
}

v1::CheckpointPart ToPart(const ShardCopy& copy) {
  v1::CheckpointPart part;
  const v1::ServerCounters counters = ToMessage(copy.counters);
  part.set_number(copy.order.mark.number);
  part.set_version(counters.version());
  part.set_examples(counters.examples());
  part.set_pushes(counters.pushes());
  *part.mutable_staleness_histogram() = counters.staleness_histogram();
  part.set_staleness_sum(counters.staleness_sum());
  part.set_staleness_max(counters.staleness_max());
  for (const auto& [member, exchange] : copy.folded) {
    part.add_members(member.value());
    part.add_exchanges(exchange.value());
  }
  part.set_whole_next(copy.whole_next);
  return part;
}

v1::ServerCounters ToMessage(const ShardCounters& in) {
  v1::ServerCounters out;
  out.set_version(in.version.value());
  out.set_pushes(in.pushes);
  out.set_duplicates(in.duplicates);
  out.set_refused(in.refused);
  out.set_refused_non_finite(in.refused_non_finite);
  // Trailing zeros are not sent: most jobs have small staleness.
  size_t used = in.staleness.size();
  while (used > 0 && in.staleness[used - 1] == 0) --used;
  for (size_t i = 0; i < used; ++i) out.add_staleness_histogram(in.staleness[i]);
  out.set_staleness_sum(in.staleness_sum);
  out.set_staleness_max(in.staleness_max);
  out.set_staged_bytes(in.staged_bytes);
  out.set_resting(in.resting);
  out.set_initial_hash(in.initial_hash);
  out.set_examples(in.examples);
  out.set_copied(in.copied);
  if (in.collecting > Exchange(0)) out.set_exchange_committed(in.collecting.value() - 1);
  return out;
}

}  // namespace tessera

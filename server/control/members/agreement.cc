#include "server/control/members/agreement.h"

#include <algorithm>

namespace tessera {

// A bound on how far ahead a member may be put, in exchanges.
constexpr uint64_t kMarginMax = 1 << 16;

Agreement::Agreement(int servers, uint64_t number, Exchange proposed, uint64_t margin)
    : number_(number),
      proposed_(proposed),
      margin_(margin),
      highest_(proposed),
      answered_(servers, false),
      dropped_(servers, false) {}

Agreement Agreement::Raised(uint64_t number) const {
  Agreement raised(static_cast<int>(answered_.size()), number, Exchange(highest_.value() + margin_),
                   std::min(kMarginMax, std::max<uint64_t>(1, 2 * margin_)));
  raised.answered_ = dropped_;
  raised.dropped_ = dropped_;
  return raised;
}

Agreement::Outcome Agreement::OnReply(ShardId server, uint64_t number, Exchange promised) {
  if (number != number_ || server.value() >= answered_.size()) return Outcome::kWaiting;
  answered_[server.value()] = true;
  highest_ = std::max(highest_, promised);
  return Conclude();
}

Agreement::Outcome Agreement::Drop(ShardId server) {
  if (server.value() >= answered_.size()) return Outcome::kWaiting;
  answered_[server.value()] = true;
  dropped_[server.value()] = true;
  return Conclude();
}

Agreement::Outcome Agreement::Conclude() const {
  if (std::find(answered_.begin(), answered_.end(), false) != answered_.end()) {
    return Outcome::kWaiting;
  }
  return highest_ == proposed_ ? Outcome::kAgreed : Outcome::kRaised;
}

void Agreement::Save(v1::OpenProposal* state) const {
  state->set_number(number_);
  state->set_proposed(proposed_.value());
  state->set_margin(margin_);
  state->set_highest(highest_.value());
  for (const bool answered : answered_) state->add_answered(answered);
  for (const bool dropped : dropped_) state->add_dropped(dropped);
}

Agreement Agreement::Load(const v1::OpenProposal& state, int servers) {
  // Those that have come since are not asked.
  const int asked = state.answered_size() > 0 ? std::min(servers, state.answered_size()) : servers;
  Agreement agreement(asked, state.number(), Exchange(state.proposed()), state.margin());
  agreement.highest_ = Exchange(state.highest());
  for (int i = 0; i < std::min(asked, state.answered_size()); ++i) {
    agreement.answered_[i] = state.answered(i);
  }
  for (int i = 0; i < std::min(asked, state.dropped_size()); ++i) {
    agreement.dropped_[i] = state.dropped(i);
  }
  return agreement;
}

std::vector<ShardId> Agreement::Missing() const {
  std::vector<ShardId> missing;
  for (size_t i = 0; i < answered_.size(); ++i) {
    if (!answered_[i]) missing.push_back(ShardId(i));
  }
  return missing;
}

}  // namespace tessera

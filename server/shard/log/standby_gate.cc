#include "server/shard/log/standby_gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

void StandbyGate::Watch(Shard* shard) {
  // A standby copies one shard's history; another shard needs another copy from its beginning.
  if (sink_ != nullptr) sink_->Break("the shard was replaced, and its standby has the old one");
  begun_ = false;
  shard_ = shard;
  recorder_.emplace(shard);
  combines_ = ShardRecorder::CombinesPushes(*shard);
  // What was acknowledged of exchanges that the job has gone back behind is none of this shard's.
  said_early_ = Exchange();
  early_is_over_ = false;
}

void StandbyGate::SetStandby(std::shared_ptr<LogSink> sink) {
  Detach();
  if (sink == nullptr) return;
  sink_ = std::move(sink);
  state_ = State::kCopying;
  position_ = 0;
  acknowledged_ = 0;
  early_is_over_ = false;
  TryBegin();
}

void StandbyGate::Detach() {
  sink_.reset();
  begun_ = false;
  recorder_->Record(false);
  state_ = State::kAlone;
  Release();
}

void StandbyGate::TryBegin() {
  if (sink_ == nullptr || begun_ || state_ != State::kCopying) return;
  // As it began, but for what it was asked of its first core.
  // A shard that is as it was made can be rebuilt from the job alone, so that nothing is sent but what follows.
  const bool copies = !ShardRecorder::IsAsMade(*shard_);
  std::optional<ImageEvent> image;
  if (copies) {
    image = ShardRecorder::ImageOf(shard_);
    if (!image.has_value()) return;
  }
  begun_ = true;
  recorder_->Record(true);
  sink_->Begin(copies);
  if (!copies && shard_->cores() != nullptr) {
    for (const CoreQuestion& asked : shard_->cores()->questions()) {
      Append(CoreQuestionEvent{asked});
    }
  }
  if (image.has_value()) {
    Append(*std::move(image));
    for (ShardEvent& push : ShardRecorder::StagedPushesOf(*shard_)) Append(std::move(push));
  }
  // From here on the standby has everything once it has acknowledged this position.
  image_position_ = position_;
}

void StandbyGate::OnAcknowledged(const LogSink* from, uint64_t position) {
  // The connection of a standby that was replaced may still deliver an acknowledgement.
  if (from != sink_.get()) return;
  acknowledged_ = std::max(acknowledged_, position);
  if (begun_ && state_ == State::kCopying && acknowledged_ >= image_position_) {
    state_ = State::kClosing;
  }
  TryFinish();
  Release();
}

// Where pushes are combined, one that was acknowledged early is with the standby when its update is.
void StandbyGate::TryFinish() {
  if (state_ != State::kClosing) return;
  // The pushes acknowledged before there was a standby are safe only once the exchange they were of is over.
  if (!early_is_over_) {
    if (combines_ && !recorder_->IsOver(said_early_)) return;
    early_is_over_ = true;
    early_position_ = position_;
  }
  if (acknowledged_ < early_position_) return;
  state_ = State::kInSync;
  sink_->OnInSync();
}

void StandbyGate::Append(ShardEvent event) {
  if (!begun_) return;
  sink_->Add(++position_, shard_->counters().version, std::move(event));
}

void StandbyGate::Settle() {
  for (ShardEvent& event : recorder_->TakeRecords()) Append(std::move(event));
  TryBegin();
  TryFinish();
  // In the order of their arrival: updates are committed one after the other.
  for (size_t i = 0; i < pushes_.size();) {
    // A push that is part of a sum is safe when the sum is logged, which is when its exchange is over.
    if (waits() && !recorder_->IsOver(pushes_[i].exchange)) {
      ++i;
      continue;
    }
    Say([this, member = pushes_[i].member, exchange = pushes_[i].exchange,
         answer = std::move(pushes_[i].answer)](const absl::Status& status) {
      // The member may read its own exchange only after its push was answered (see SayTo).
      if (unsaid_[member] == exchange) unsaid_.erase(member);
      answer(status);
    });
    pushes_.erase(pushes_.begin() + static_cast<int64_t>(i));
  }
}

void StandbyGate::Say(std::function<void(absl::Status)> answer) {
  // With a standby in sync an answer is given only when the standby has all that led to it.
  if (!waits() || acknowledged_ >= position_) return answer(absl::OkStatus());
  if (!abdicated_.ok()) return answer(abdicated_);
  waiting_.push_back({position_, std::move(answer)});
}

void StandbyGate::SayTo(MemberId member, Exchange after, std::function<void(absl::Status)> answer) {
  // The member has not had the answer to its push yet; that answer is what waits for the standby.
  const auto unsaid = unsaid_.find(member);
  if (unsaid != unsaid_.end() && unsaid->second == after) return answer(absl::OkStatus());
  Say(std::move(answer));
}

void StandbyGate::SayAccepted(MemberId member, Exchange exchange,
                              std::function<void(absl::Status)> answer) {
  if (!waits()) {
    // Without a standby answers are given at once, and the latest exchange answered so is remembered for the next one.
    said_early_ = std::max(said_early_, exchange);
    return answer(absl::OkStatus());
  }
  if (combines_ && !recorder_->IsOver(exchange)) {
    if (!abdicated_.ok()) return answer(abdicated_);
    unsaid_[member] = exchange;
    pushes_.push_back({member, exchange, std::move(answer)});
    return;
  }
  Say(std::move(answer));
}

void StandbyGate::OnMembers() {
  for (size_t i = 0; i < pushes_.size();) {
    // A member that is no more in the plan gets its answer at once: its exchange may never be over.
    if (shard_->plan().Find(pushes_[i].member) != nullptr) {
      ++i;
      continue;
    }
    const WaitingPush push = std::move(pushes_[i]);
    unsaid_.erase(push.member);
    pushes_.erase(pushes_.begin() + static_cast<int64_t>(i));
    push.answer(shard_->members().NotMember(absl::StrCat("push from member ", push.member.value(),
                                                         " exchange ", push.exchange.value())));
  }
}

void StandbyGate::Release() {
  // Answers are released in their order, as far as the standby has acknowledged.
  while (!waiting_.empty() && (!waits() || waiting_.front().position <= acknowledged_)) {
    const auto answer = std::move(waiting_.front().answer);
    waiting_.pop_front();
    answer(absl::OkStatus());
  }
  if (waits()) return;
  unsaid_.clear();
  for (WaitingPush& push : std::exchange(pushes_, {})) {
    said_early_ = std::max(said_early_, push.exchange);
    push.answer(absl::OkStatus());
  }
}

void StandbyGate::Refuse(const absl::Status& why) {
  unsaid_.clear();
  for (WaitingPush& push : std::exchange(pushes_, {})) push.answer(why);
  // What is to be said is true; it may only be lost.
  for (Waiting& waiting : std::exchange(waiting_, {})) waiting.answer(absl::OkStatus());
}

void StandbyGate::Abdicate(const absl::Status& why) {
  // A shard that has lost its place refuses everything that waits: another one leads and has not heard of it.
  if (!waits()) return;
  abdicated_ = why;
  unsaid_.clear();
  for (WaitingPush& push : std::exchange(pushes_, {})) push.answer(why);
  for (Waiting& waiting : std::exchange(waiting_, {})) waiting.answer(why);
}

}  // namespace tessera

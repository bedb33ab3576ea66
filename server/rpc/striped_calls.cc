#include "server/rpc/striped_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

StripedStream::StripedStream(StripedCalls* calls, StripeName name, Striped striped,
                             CallStream* first)
    : calls_(calls),
      name_(std::move(name)),
      striped_(striped),
      first_(first),
      streams_(static_cast<size_t>(name_.count)),
      has_come_(static_cast<size_t>(name_.count)) {
  streams_[0] = first;
  has_come_[0] = true;
  open_ = 1;
}

void StripedStream::Read(grpc::ByteBuffer* message) {
  Begin({Kind::kRead, TurnOf(Striped::kReads), message, nullptr});
}

void StripedStream::Write(const grpc::ByteBuffer* message) {
  Begin({Kind::kWrite, TurnOf(Striped::kWrites), nullptr, message});
}

void StripedStream::WriteLast(const grpc::ByteBuffer* message) {
  Begin({Kind::kWriteLast, TurnOf(Striped::kWrites), nullptr, message});
}

void StripedStream::Begin(const Effort& effort) {
  CallStream* stream = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    stream = streams_[static_cast<size_t>(effort.stripe)];
    // The connection may come a little later than the call that needs it.
    if (stream == nullptr && !is_cancelled_) {
      waiting_ = effort;
      return;
    }
  }
  if (stream == nullptr) return Fail(effort);
  Ask(effort, stream);
}

// A stream is there until this has ended it and its OnDone has come.
void StripedStream::Ask(const Effort& effort, CallStream* stream) {
  switch (effort.kind) {
    case Kind::kRead:
      return stream->Read(effort.read);
    case Kind::kWrite:
      return stream->Write(effort.write);
    case Kind::kWriteLast:
      // The others first: this object goes with the last one.
      EndAll(absl::OkStatus(), effort.stripe);
      return stream->WriteLast(effort.write);
  }
}

void StripedStream::Fail(const Effort& effort) {
  switch (effort.kind) {
    case Kind::kRead:
      return call_->OnReadDone(false);
    case Kind::kWrite:
      return call_->OnWriteDone(false);
    case Kind::kWriteLast:
      // Nothing is told of a last message but the end.
      return End(absl::CancelledError("the caller has gone"));
  }
}

void StripedStream::End(const absl::Status& status) { EndAll(status, std::nullopt); }

void StripedStream::EndAll(const absl::Status& status, std::optional<int> but) {
  std::vector<CallStream*> streams;
  {
    absl::MutexLock lock(&mutex_);
    end_ = status;
    waiting_.reset();
    for (int i = 0; i < name_.count; ++i) {
      CallStream* const stream = streams_[static_cast<size_t>(i)];
      if (stream != nullptr && i != but) streams.push_back(stream);
    }
  }
  // A connection that comes from then on finds nothing, and its caller gives it up.
  calls_->Close(*this);
  // Behind the last one's end this object may be gone.
  for (CallStream* const stream : streams) stream->End(status);
}

// Their OnCancel comes later, and is the call's.
void StripedStream::Cancel() {
  absl::MutexLock lock(&mutex_);
  // Each stream is there as long as the lock is held: OnDone takes it.
  for (CallStream* const stream : streams_) {
    if (stream != nullptr) stream->Cancel();
  }
}

absl::Status StripedStream::Add(const StripeName& name, CallStream* stream) {
  std::optional<Effort> effort;
  std::optional<absl::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    const auto number = static_cast<size_t>(name.number);
    if (name.count != name_.count || has_come_[number]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stripe ", name.number, " of ", name.count, ": ",
          name.count != name_.count ? absl::StrCat("its call has ", name_.count, " connections")
                                    : "has come before"));
    }
    has_come_[number] = true;
    streams_[number] = stream;
    ++open_;
    end = end_;
    if (!end && waiting_ && waiting_->stripe == name.number) {
      effort = *std::exchange(waiting_, std::nullopt);
    }
  }
  if (end) stream->End(*end);
  if (effort) Ask(*effort, stream);
  return absl::OkStatus();
}

void StripedStream::OnCancel() {
  std::optional<Effort> waiting;
  {
    absl::MutexLock lock(&mutex_);
    // One connection that is lost is the call's end; the others are cancelled for it and say so, too. A call that has
    // ended may still be on its way to the caller, who gives up what it does not need.
    if (is_cancelled_ || end_) return;
    is_cancelled_ = true;
    // What is under way on connections that have come is failed by gRPC.
    waiting = std::exchange(waiting_, std::nullopt);
    for (CallStream* const stream : streams_) {
      if (stream != nullptr) stream->Cancel();
    }
  }
  call_->OnCancel();
  if (waiting) Fail(*waiting);
}

void StripedStream::OnDone(int number) {
  {
    absl::MutexLock lock(&mutex_);
    streams_[static_cast<size_t>(number)] = nullptr;
    // A connection that came behind the call's end is nothing to it.
    if (--open_ > 0 || is_done_) return;
    is_done_ = true;
  }
  call_->OnDone();
}

Stripe::Stripe(StripedCalls* calls, StripeName name, CallStream* stream,
               std::shared_ptr<StripedStream> call)
    : calls_(calls),
      name_(std::move(name)),
      stream_(stream),
      host_(NumberOfHost(stream->peer())),
      call_(std::move(call)) {}

std::shared_ptr<StripedStream> Stripe::call() const {
  absl::MutexLock lock(&mutex_);
  return call_;
}

void Stripe::SetCall(std::shared_ptr<StripedStream> call) {
  absl::MutexLock lock(&mutex_);
  call_ = std::move(call);
}

void Stripe::Join() {
  const absl::Status status = call()->Add(name_, stream_);
  if (status.ok()) return;
  SetCall(nullptr);
  stream_->End(status);
}

void Stripe::OnReadDone(bool ok) { call()->OnReadDone(ok); }

void Stripe::OnWriteDone(bool ok) { call()->OnWriteDone(ok); }

// gRPC says so at most once, behind the handler that has called Join.
void Stripe::OnCancel() {
  if (calls_->StopWaiting(this)) {
    return stream_->End(absl::CancelledError("the caller has gone"));
  }
  const std::shared_ptr<StripedStream> joined = call();
  if (joined != nullptr) joined->OnCancel();
}

void Stripe::OnDone() {
  const std::shared_ptr<StripedStream> joined = call();
  if (joined != nullptr) joined->OnDone(name_.number);
}

void Stripe::GiveWay() {
  // Whoever takes it out of the list is who ends it, or joins it to its call.
  if (!calls_->StopWaiting(this)) return;
  stream_->End(absl::ResourceExhaustedError(
      absl::StrCat("stripe from ", stream_->peer(), ": its call has not come, and ",
                   calls_->waiting_per_host(), " later ones of its host wait for theirs")));
}

absl::Status StripedCalls::Open(const std::shared_ptr<StripedStream>& call) {
  std::vector<std::shared_ptr<Stripe>> early;
  {
    absl::MutexLock lock(&mutex_);
    // The name was drawn by the caller. Another one's cannot be guessed, nor taken.
    const std::string& name = call->name().call;
    if (!open_.emplace(name, call).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(kStripeKey, ": a call of this name is there, want another one for each"));
    }
    const auto found = waiting_.find(name);
    if (found != waiting_.end()) {
      early = std::move(found->second);
      waiting_.erase(found);
    }
    for (const std::shared_ptr<Stripe>& stripe : early) stripe->SetCall(call);
  }
  for (const std::shared_ptr<Stripe>& stripe : early) {
    waiting_limit_.Remove(stripe->host_, stripe.get());
    stripe->Join();
  }
  return absl::OkStatus();
}

void StripedCalls::Join(const std::shared_ptr<Stripe>& stripe) {
  // Counted first: its call may come, and take it out again, at any moment from now on.
  waiting_limit_.Add(stripe->host_, stripe);
  {
    absl::MutexLock lock(&mutex_);
    const auto found = open_.find(stripe->name_.call);
    if (found == open_.end()) {
      waiting_[stripe->name_.call].push_back(stripe);
      return;
    }
    stripe->SetCall(found->second);
  }
  waiting_limit_.Remove(stripe->host_, stripe.get());
  stripe->Join();
}

void StripedCalls::Close(const StripedStream& call) {
  std::shared_ptr<StripedStream> closed;  // let go of outside of the lock
  absl::MutexLock lock(&mutex_);
  const auto found = open_.find(call.name().call);
  // A call that was refused, as another one has its name, leaves that alone.
  if (found == open_.end() || found->second.get() != &call) return;
  closed = std::move(found->second);
  open_.erase(found);
}

bool StripedCalls::StopWaiting(const Stripe* stripe) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = waiting_.find(stripe->name_.call);
    if (found == waiting_.end()) return false;
    std::vector<std::shared_ptr<Stripe>>& stripes = found->second;
    const auto at = std::find_if(stripes.begin(), stripes.end(),
                                 [stripe](const auto& each) { return each.get() == stripe; });
    if (at == stripes.end()) return false;
    stripes.erase(at);
    if (stripes.empty()) waiting_.erase(found);
  }
  waiting_limit_.Remove(stripe->host_, stripe);
  return true;
}

size_t StripedCalls::waiting() const {
  absl::MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& [call, stripes] : waiting_) count += stripes.size();
  return count;
}

}  // namespace tessera

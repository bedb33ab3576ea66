#include "server/rpc/local_calls.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/rpc/call_stream.h"
#include "server/rpc/pull_call.h"
#include "server/rpc/push_call.h"

namespace tessera {

// One call's.
class LocalCalls::Stream final : public CallStream {
 public:
  Stream(LocalCalls* calls, std::shared_ptr<MemoryLink> link, uint64_t member, uint32_t call)
      : calls_(*calls), link_(std::move(link)), member_(member), number_(call) {}

  void Serve(std::shared_ptr<StreamEvents> call) { call_ = std::move(call); }
  StreamEvents& call() { return *call_; }
  // What the first Read is to find.
  void SetMessage(grpc::ByteBuffer message) {
    message_ = std::move(message);
    has_message_ = true;
  }

  std::string peer() const override { return absl::StrCat("shared memory of member ", member_); }

  absl::Status CheckCaller(const v1::Caller& caller) const override {
    if (caller.member() == member_ && caller.link() == link_->number()) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat("the caller says that it is member ",
                                                    caller.member(),
                                                    ", and calls by the link of member ", member_));
  }

  bool wants_one_message() const override { return true; }

  void Read(grpc::ByteBuffer* message) override {
    const bool has_message = std::exchange(has_message_, false);
    if (has_message) *message = std::move(message_);
    call_->OnReadDone(has_message);
  }

  void Write(const grpc::ByteBuffer* message) override {
    Send(PacketKind::kMessage, *message);
    // Whoever does not read loses the link, and the call ends with OnCancel.
    call_->OnWriteDone(true);
  }

  void WriteLast(const grpc::ByteBuffer* message) override {
    Send(PacketKind::kLast, *message);
    Finish();
  }

  void End(const absl::Status& status) override {
    const absl::Status sent = SendEnd(link_->connection(), number_, status);
    if (!sent.ok()) Lose(sent);
    Finish();
  }

  void Cancel() override { calls_.CancelSoon({link_->number(), number_}); }

 private:
  void Send(PacketKind kind, const grpc::ByteBuffer& message) {
    const absl::Status sent = SendPacket(link_->connection(), number_, kind, message);
    if (!sent.ok()) Lose(sent);
  }

  // The member hears that its link has ended, and calls again over gRPC.
  void Lose(const absl::Status& why) {
    calls_.planes_.door()->Leave(link_->number());
    if (absl::IsUnavailable(why)) return;
    Log(LogLevel::kWarning, absl::StrCat("server: a member's link ends member=", member_, " why=\"",
                                         why.message(), "\""));
  }

  void Finish() {
    // The calls' own pointer may have been the last one.
    const std::shared_ptr<Stream> self = calls_.Take({link_->number(), number_});
    LocalCalls& calls = calls_;
    call_->OnDone();
    calls.OnEnded();
  }

  LocalCalls& calls_;
  const std::shared_ptr<MemoryLink> link_;
  const uint64_t member_;
  const uint32_t number_;
  std::shared_ptr<StreamEvents> call_;
  grpc::ByteBuffer message_;
  bool has_message_ = false;
};

LocalCalls::~LocalCalls() {
  absl::MutexLock lock(&mutex_);
  TESSERA_CHECK(open_ == 0);
}

absl::Status LocalCalls::OnPacket(const std::shared_ptr<MemoryLink>& link, uint64_t member,
                                  LocalPacket packet) {
  const Key key = {link->number(), packet.call};
  if (packet.kind == PacketKind::kCancel) {
    // Its answer may be on its way.
    if (const std::shared_ptr<Stream> stream = Find(key); stream != nullptr) Cancel({stream});
    return absl::OkStatus();
  }
  if (packet.kind != PacketKind::kPull && packet.kind != PacketKind::kFetch &&
      packet.kind != PacketKind::kPush) {
    return absl::InvalidArgumentError(absl::StrCat("local call: a worker sent a packet of kind ",
                                                   static_cast<int>(packet.kind),
                                                   ", which is a server's"));
  }
  // Streams and calls know each other before the table has them: an end of the link may cancel what is in it.
  const auto stream = std::make_shared<Stream>(this, link, member, packet.call);
  std::shared_ptr<PushCall> push;
  std::shared_ptr<PullCall> pull;
  if (packet.kind == PacketKind::kPush) {
    push = std::make_shared<PushCall>(&planes_, stream.get());
    stream->Serve(push);
    stream->SetMessage(std::move(packet.body));
  } else {
    pull = std::make_shared<PullCall>(&planes_, stream.get());
    stream->Serve(pull);
  }
  {
    absl::MutexLock lock(&mutex_);
    // A link has few calls at a time, so that counting them costs less than another table of counts would.
    const auto first = streams_.lower_bound({key.link, 0});
    size_t of_link = 0;
    for (auto it = first; it != streams_.end() && it->first.link == key.link; ++it) ++of_link;
    if (of_link >= kCallsPerLinkMax) {
      // The link ends, and with it the calls: one that has so many has lost count of them.
      return absl::ResourceExhaustedError(absl::StrCat(
          "local call: ", of_link, " calls of a link are open, want at most ", kCallsPerLinkMax));
    }
    if (!streams_.emplace(key, stream).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("local call: the number ", key.call, " is that of a call that is open"));
    }
    ++open_;
  }
  if (push != nullptr) {
    push->Start();
  } else if (packet.kind == PacketKind::kPull) {
    pull->Start(packet.body);
  } else {
    pull->StartFetch(packet.body);
  }
  return absl::OkStatus();
}

void LocalCalls::OnGone(uint64_t link) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = streams_.lower_bound({link, 0}); it != streams_.end() && it->first.link == link;
         ++it) {
      streams.push_back(it->second);
    }
  }
  Cancel(streams);
}

void LocalCalls::OnPoke() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (const Key& key : std::exchange(unwanted_, {})) {
      const auto found = streams_.find(key);
      if (found != streams_.end()) streams.push_back(found->second);
    }
  }
  Cancel(streams);
}

void LocalCalls::End() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  Cancel(streams);
  // Pushes that the shard has by now are not cancelled: their answers are waited for.
  streams.clear();
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_ == 0; };
  mutex_.Await(absl::Condition(&none));
}

size_t LocalCalls::open() const {
  absl::MutexLock lock(&mutex_);
  return open_;
}

std::shared_ptr<LocalCalls::Stream> LocalCalls::Find(const Key& key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = streams_.find(key);
  return found == streams_.end() ? nullptr : found->second;
}

// A call that has just ended lets this pass.
void LocalCalls::Cancel(const std::vector<std::shared_ptr<Stream>>& streams) {
  for (const std::shared_ptr<Stream>& stream : streams) stream->call().OnCancel();
}

std::shared_ptr<LocalCalls::Stream> LocalCalls::Take(const Key& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = streams_.find(key);
  TESSERA_CHECK(found != streams_.end());
  std::shared_ptr<Stream> stream = std::move(found->second);
  streams_.erase(found);
  return stream;
}

void LocalCalls::OnEnded() {
  absl::MutexLock lock(&mutex_);
  --open_;
}

// Whoever wants the call cancelled may hold locks that its end takes, too.
void LocalCalls::CancelSoon(const Key& key) {
  {
    absl::MutexLock lock(&mutex_);
    unwanted_.push_back(key);
  }
  planes_.door()->Poke();
}

}  // namespace tessera

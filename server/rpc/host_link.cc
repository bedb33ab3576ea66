#include "server/rpc/host_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "server/rpc/coordinator_wait.h"

namespace tessera {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(250);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

}  // namespace

HostLink::HostLink(Options options) : options_(std::move(options)) {
  std::random_device device;
  options_.hello.set_life((uint64_t{device()} << 32) | device() | 1);
  {
    absl::MutexLock lock(&mutex_);
    last_heard_ = SteadyNow();
  }
  reader_ = std::thread([this] { Read(); });
  writer_ = std::thread([this] { Write(); });
}

HostLink::~HostLink() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  pause_.Notify();
  write_.Notify();
  reader_.join();
  writer_.join();
}

void HostLink::SaySoon() { write_.Notify(); }

void HostLink::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_ || ended_) return;
    ended_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  pause_.Notify();
  write_.Notify();
  options_.on_end(std::move(status));
}

absl::Duration HostLink::patience() const {
  return std::max(options_.lease_timeout, absl::Nanoseconds(word_.away_timeout_ns()));
}

std::string HostLink::coordinator() const {
  absl::MutexLock lock(&mutex_);
  return address_;
}

v1::CoordinatorWord HostLink::word() const {
  absl::MutexLock lock(&mutex_);
  return word_;
}

bool HostLink::Heed(const v1::HostOrder& order) {
  absl::MutexLock lock(&mutex_);
  if (order.word().term() < word_.term()) return false;
  // A refusal has none.
  if (order.has_word()) word_ = order.word();
  last_heard_ = SteadyNow();
  heard_once_ = true;
  return true;
}

void HostLink::LookElsewhere() {
  if (!options_.find_coordinator) return;
  const std::string at = options_.find_coordinator();
  absl::MutexLock lock(&mutex_);
  if (!at.empty() && at != address_ && context_ != nullptr) context_->TryCancel();
}

std::string HostLink::Converse(v1::StandbyControl::Stub* stub, absl::Status* status) {
  grpc::ClientContext call;
  v1::HostMessage first = options_.message();
  *first.mutable_hello() = options_.hello;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_ || ended_) return "";
    context_ = &call;
    first.mutable_hello()->set_run(word_.run());
    first.mutable_hello()->set_term(word_.term());
    first.mutable_hello()->set_changes(word_.changes());
  }
  const auto stream = stub->Attach(&call);
  if (stream->Write(first)) {
    absl::MutexLock lock(&mutex_);
    stream_ = stream.get();
  }
  std::string refusal;
  for (v1::HostOrder order; refusal.empty() && stream->Read(&order);) {
    refusal = order.refuse();
    if (!refusal.empty()) break;
    if (!Heed(order)) break;
    options_.on_order(order);
  }
  call.TryCancel();
  {
    absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
    const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
    mutex_.Await(absl::Condition(&idle));
  }
  *status = FromGrpc(stream->Finish());
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  return refusal;
}

void HostLink::Read() {
  std::unique_ptr<v1::StandbyControl::Stub> stub;
  std::string connected_to;
  CoordinatorWait wait;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ || ended_) return;
    }
    const std::string at =
        options_.find_coordinator ? options_.find_coordinator() : options_.coordinator;
    if (!at.empty() && at != connected_to) {
      stub = v1::StandbyControl::NewStub(OpenControlChannel(at));
      connected_to = at;
      absl::MutexLock lock(&mutex_);
      address_ = at;
    }
    absl::Status status = absl::UnavailableError("no server has been elected coordinator");
    const std::string refusal = stub != nullptr ? Converse(stub.get(), &status) : "";
    if (!refusal.empty()) {
      End(absl::FailedPreconditionError(absl::StrCat("coordinator at ", connected_to,
                                                     " refused this server: ", refusal)));
    }
    bool never_heard;
    {
      absl::MutexLock lock(&mutex_);
      never_heard = !heard_once_;
    }
    if (never_heard) wait.Tell(connected_to, status);
    pause_.WaitFor(kRetryPause);
  }
}

void HostLink::Write() {
  const absl::Duration interval = std::min(kInterval, options_.lease_timeout / 4);
  while (true) {
    grpc::ClientReaderWriter<v1::HostMessage, v1::HostOrder>* to = nullptr;
    absl::Duration silence, waited;
    std::string at;
    {
      write_.WaitFor(interval);
      absl::MutexLock lock(&mutex_);
      if (stopping_ || ended_) return;
      silence = heard_once_ ? SteadyNow() - last_heard_ : absl::ZeroDuration();
      waited = patience();
      at = address_;
      to = stream_;
      writing_ = to != nullptr;
    }
    if (to != nullptr) {
      to->Write(options_.message());
      absl::MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (silence > options_.lease_timeout / 2) LookElsewhere();
    if (silence > waited) {
      End(absl::UnavailableError(absl::StrCat("coordinator at ", at, " was not heard for ",
                                              waited == options_.lease_timeout ? "the lease of " : "",
                                              absl::FormatDuration(waited))));
    }
  }
}

}  // namespace tessera

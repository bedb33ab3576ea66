#include "server/rpc/host_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "proto/replication.grpc.pb.h"

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

void HostLink::Read() {
  const auto stub = v1::StandbyControl::NewStub(OpenControlChannel(options_.coordinator));
  while (true) {
    grpc::ClientContext call;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ || ended_) return;
      context_ = &call;
    }
    const auto stream = stub->Attach(&call);
    v1::HostMessage first = options_.message();
    *first.mutable_hello() = options_.hello;
    std::string refusal;
    if (stream->Write(first)) {
      {
        absl::MutexLock lock(&mutex_);
        stream_ = stream.get();
      }
      for (v1::HostOrder order; refusal.empty() && stream->Read(&order);) {
        {
          absl::MutexLock lock(&mutex_);
          if (stopping_) break;
          last_heard_ = SteadyNow();
          heard_once_ = true;
        }
        refusal = order.refuse();
        if (refusal.empty()) options_.on_order(order);
      }
    } else {
      v1::HostOrder order;
      if (stream->Read(&order)) refusal = order.refuse();
    }
    call.TryCancel();
    {
      absl::MutexLock lock(&mutex_);
      stream_ = nullptr;
      const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
      mutex_.Await(absl::Condition(&idle));
    }
    stream->Finish();
    {
      absl::MutexLock lock(&mutex_);
      context_ = nullptr;
    }
    if (!refusal.empty()) {
      End(absl::FailedPreconditionError(absl::StrCat(
          "coordinator at ", options_.coordinator, " refused this server: ", refusal)));
    }
    pause_.WaitFor(kRetryPause);
  }
}

void HostLink::Write() {
  const absl::Duration interval = std::min(kInterval, options_.lease_timeout / 4);
  while (true) {
    grpc::ClientReaderWriter<v1::HostMessage, v1::HostOrder>* to = nullptr;
    bool lost = false;
    {
      write_.WaitFor(interval);
      absl::MutexLock lock(&mutex_);
      if (stopping_ || ended_) return;
      lost = heard_once_ && SteadyNow() - last_heard_ > options_.lease_timeout;
      to = stream_;
      writing_ = to != nullptr;
    }
    if (to != nullptr) {
      to->Write(options_.message());
      absl::MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (lost) {
      End(absl::UnavailableError(
          absl::StrCat("coordinator at ", options_.coordinator, " was not heard for the lease of ",
                       absl::FormatDuration(options_.lease_timeout))));
    }
  }
}

}  // namespace tessera

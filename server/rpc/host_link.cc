#include "server/rpc/host_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "server/rpc/coordinator_wait.h"

namespace tessera {
namespace {

// A host says at least so often that it lives; shorter leases have it say so four times in each.
constexpr absl::Duration kInterval = absl::Milliseconds(250);
// Between one attempt at the coordinator and the next: it may have been started a moment too late.
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

}  // namespace

HostLink::HostLink(Options options)
    : options_(std::move(options)),
      stream_(options_.coordinator, options_.find_coordinator, options_.open_channel),
      contact_(options_.lease_timeout, SteadyNow()) {
  // A number that no other process of this rank has; never 0, which means none.
  std::random_device device;
  options_.hello.set_life((uint64_t{device()} << 32) | device() | 1);
  reader_ = std::thread([this] { Read(); });
  writer_ = std::thread([this] { Write(); });
}

HostLink::~HostLink() {
  // The reader may be inside of gRPC, and both may be waiting.
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stream_.Stop();
  pause_.Notify();
  write_.Notify();
  reader_.join();
  writer_.join();
}

void HostLink::SaySoon() { write_.Notify(); }

void HostLink::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    // The first end counts.
    if (stopping_ || ended_) return;
    ended_ = true;
  }
  stream_.Stop();
  pause_.Notify();
  write_.Notify();
  options_.on_end(std::move(status));
}

std::string HostLink::coordinator() const { return stream_.address(); }

v1::CoordinatorWord HostLink::word() const {
  absl::MutexLock lock(&mutex_);
  return contact_.word();
}

bool HostLink::Heed(const v1::HostOrder& order) {
  absl::MutexLock lock(&mutex_);
  return contact_.Hear(order.has_word() ? &order.word() : nullptr, SteadyNow());
}

// One connection, from hello to its end. The hello has the word that this host heard last, so that a coordinator of an
// earlier term learns that it is none any more.
absl::Status HostLink::Converse() {
  v1::HostMessage first = options_.message();
  *first.mutable_hello() = options_.hello;
  {
    absl::MutexLock lock(&mutex_);
    first.mutable_hello()->set_run(contact_.word().run());
    first.mutable_hello()->set_term(contact_.word().term());
    first.mutable_hello()->set_changes(contact_.word().changes());
    first.mutable_hello()->set_server_key(contact_.word().server_key());
  }
  // The writer may write only behind the hello.
  if (stream_.stream().Write(first)) stream_.MayWrite();
  std::string refusal;
  for (v1::HostOrder order; stream_.stream().Read(&order);) {
    refusal = order.refuse();
    if (!refusal.empty() || !Heed(order)) break;
    options_.on_order(order);
  }
  // A coordinator that is no longer believed would go on sending.
  stream_.Cut();
  const absl::Status status = stream_.Finish();
  if (!refusal.empty()) {
    End(absl::FailedPreconditionError(
        absl::StrCat("coordinator at ", stream_.address(), " refused this server: ", refusal)));
  }
  return status;
}

void HostLink::Read() {
  CoordinatorWait wait;
  while (!Stopping()) {
    absl::Status status = stream_.Open();
    if (status.ok()) status = Converse();
    bool has_heard = false;
    {
      absl::MutexLock lock(&mutex_);
      has_heard = contact_.has_heard();
    }
    if (!has_heard) wait.Tell(stream_.address(), status);
    // Between attempts the coordinator may be starting, or another one be elected.
    pause_.WaitFor(kRetryPause);
  }
}

void HostLink::Write() {
  const absl::Duration interval = std::min(kInterval, options_.lease_timeout / 4);
  while (true) {
    write_.WaitFor(interval);
    if (Stopping()) return;
    stream_.Write([this](Stream::Stream* to) { to->Write(options_.message()); });
    absl::Duration silence, waited;
    {
      absl::MutexLock lock(&mutex_);
      silence = contact_.Silence(SteadyNow());
      waited = contact_.patience();
    }
    // Half a lease is left to find the coordinator where it has gone.
    if (silence > options_.lease_timeout / 2) stream_.LookElsewhere();
    if (silence > waited) {
      End(absl::UnavailableError(absl::StrCat(
          "coordinator at ", stream_.address(), " was not heard for ",
          waited == options_.lease_timeout ? "the lease of " : "", absl::FormatDuration(waited))));
    }
  }
}

}  // namespace tessera

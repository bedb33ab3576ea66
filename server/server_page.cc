#include "server/server_page.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/wakeup.h"
#include "common/rpc/security.h"

namespace tessera {
namespace {

// How long a button waits until what it does is kept.
constexpr absl::Duration kActionMax = absl::Seconds(3);
constexpr char kReason[] = "asked for on the page";

absl::Status Do(PageAction action, Coordinator* coordinator, absl::Time now) {
  switch (action) {
    case PageAction::kCheckpoint:
      return coordinator->Checkpoint(kReason, now).status();
    case PageAction::kDrain:
      coordinator->Drain(kReason, now);
      return absl::OkStatus();
    case PageAction::kStop:
      coordinator->Stop(kReason, now);
      return absl::OkStatus();
  }
  return absl::InternalError("page: no such action");
}

// What is shared with the store's thread, which may come late.
struct Outcome {
  absl::Mutex mutex;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  Wakeup is_known;
};

absl::Status Act(LiveCoordinator* live, PageAction action) {
  const auto outcome = std::make_shared<Outcome>();
  live->Ask(
      0,
      [action](Coordinator& coordinator, absl::Time now) { return Do(action, &coordinator, now); },
      [outcome](const absl::Status& status) {
        absl::MutexLock lock(&outcome->mutex);
        outcome->status = status;
        outcome->is_known.Notify();
      });
  outcome->is_known.WaitFor(kActionMax);
  absl::MutexLock lock(&outcome->mutex);
  if (outcome->status.has_value()) return *outcome->status;
  return absl::UnavailableError(
      "it is not kept yet, as the store of the coordinator's state is slow; the events tell of it");
}

// Names by which a browser may reach this machine's page.
std::vector<std::string> HostsOf(const std::string& host, const v1::Job& job) {
  std::vector<std::string> hosts = {host};
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0) hosts.emplace_back(name);
  for (const std::string& address : job.cluster().servers().addresses()) {
    const absl::optional<HostPort> server = ParseHostPort(address);
    if (server.has_value()) hosts.push_back(server->host);
  }
  return hosts;
}

absl::StatusOr<std::unique_ptr<PagePort>> Open(const std::string& address, const v1::Job& job) {
  if (ParseHostPort(address).has_value() && IsExposed(address, job.security())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--page: \"", address, "\" can be reached by other machines, which could end the job. ",
        kSecurityAdvice, "; or listen on 127.0.0.1"));
  }
  return PagePort::Listen(address);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerPage>> ServerPage::Start(Options options, const v1::Job& job) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<PagePort> port, Open(options.address, job));
  const Security& security = CurrentSecurity();
  TESSERA_ASSIGN_OR_RETURN(PageTls tls, OpenPageTls(security));
  PageSite::Options site;
  site.status = std::move(options.status);
  site.security = &security;
  site.hosts = HostsOf(port->host(), job);
  if (LiveCoordinator* const live = options.live; live != nullptr) {
    site.events = [live](uint64_t after) { return live->EventsAfter(after); };
    site.act = [live](PageAction action) { return Act(live, action); };
  }
  std::unique_ptr<ServerPage> page(new ServerPage);
  page->url_ = absl::StrCat(tls != nullptr ? "https://" : "http://", port->address(), "/");
  page->site_ = std::make_unique<PageSite>(std::move(site));
  page->server_ = std::make_unique<HttpServer>(std::move(port), std::move(tls), page->site_.get());
  return page;
}

absl::Status ServerPage::Check(const std::string& address, const v1::Job& job) {
  if (address.empty()) return absl::OkStatus();
  const absl::Status opened = Open(address, job).status();
  return opened.ok() ? opened : absl::InvalidArgumentError(opened.message());
}

}  // namespace tessera

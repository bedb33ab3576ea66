#include "server/page/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/check.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// How often clients are looked at whether anything happens or not.
constexpr int kTurnMs = 250;
// Connections that are taken before the clients that are there have their turn.
constexpr int kTakenPerTurn = 32;
// Hosts whose pace is known; beyond it all are forgotten.
constexpr size_t kPacesMax = 1024;

std::string HostOf(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

int64_t ThreadCpuNs() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

}  // namespace

HttpServer::HttpServer(std::unique_ptr<PagePort> port, PageTls tls, HttpSite* site)
    : port_(std::move(port)),
      tls_(std::move(tls)),
      site_(*site),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK(wake_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  TESSERA_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(wake_);
}

void HttpServer::Run() {
  // What pages cost a server can be seen by this name, as in `top -H`.
  pthread_setname_np(pthread_self(), "page");
  // OpenSSL writes to sockets without MSG_NOSIGNAL.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  std::vector<pollfd> waits;
  while (true) {
    waits.assign(1, {wake_, POLLIN, 0});
    for (const int fd : port_->sockets()) waits.push_back({fd, POLLIN, 0});
    const size_t first_client = waits.size();
    for (const auto& client : clients_) waits.push_back({client->fd(), client->wanted(), 0});
    // An error, as EINTR, is a turn in which nothing happened.
    if (poll(waits.data(), waits.size(), kTurnMs) < 0) {
      for (pollfd& wait : waits) wait.revents = 0;
    }
    if (waits[0].revents != 0) return clients_.clear();
    const absl::Time now = SteadyNow();
    for (size_t i = first_client; i < waits.size(); ++i) {
      if (waits[i].revents != 0) clients_[i - first_client]->Drive(&site_, now);
    }
    for (size_t i = 1; i < first_client; ++i) {
      if (waits[i].revents != 0) Accept(waits[i].fd, now);
    }
    Update(now);
    for (const auto& client : clients_) client->Expire(now);
    clients_.erase(std::remove_if(clients_.begin(), clients_.end(),
                                  [](const auto& client) { return client->is_over(); }),
                   clients_.end());
    cpu_ns_.store(ThreadCpuNs(), std::memory_order_relaxed);
  }
}

void HttpServer::Update(absl::Time now) {
  const bool has_viewers = std::any_of(clients_.begin(), clients_.end(),
                                       [](const auto& client) { return client->views_page(); });
  const std::shared_ptr<const std::string> update = site_.Update(has_viewers, now);
  for (const auto& client : clients_) {
    if (update != nullptr) client->Offer(update);
    const bool has_news = update != nullptr && client->views_page();
    if (has_news || client->follows_events()) client->Drive(&site_, now);
  }
}

void HttpServer::Accept(int listening, absl::Time now) {
  for (int i = 0; i < kTakenPerTurn; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const int fd =
        accept4(listening, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      // Whoever waits would wake this thread at once, again and again.
      poll(nullptr, 0, kTurnMs);
    }
    if (fd < 0) return;
    const std::string host = HostOf(peer);
    if (!IsInTurn(host, now) || !MakeRoom(host)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      close(fd);
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    clients_.push_back(std::make_unique<PageConnection>(fd, host, tls_.get(), now));
  }
}

bool HttpServer::IsInTurn(const std::string& host, absl::Time now) {
  if (paces_.size() > kPacesMax) paces_.clear();
  Pace& pace = paces_.try_emplace(host, Pace{kPageNewAtOnce, now}).first->second;
  pace.left = std::min(kPageNewAtOnce,
                       pace.left + kPageNewPerSecond * absl::ToDoubleSeconds(now - pace.refilled));
  pace.refilled = now;
  if (pace.left < 1) return false;
  pace.left -= 1;
  return true;
}

bool HttpServer::MakeRoom(const std::string& host) {
  int all = 0, of_host = 0;
  PageConnection* silent = nullptr;
  for (const auto& client : clients_) {
    if (client->is_over()) continue;
    ++all;
    const bool is_hosts = client->host() == host;
    of_host += is_hosts;
    if (client->is_silent() && (silent == nullptr || client->since() < silent->since())) {
      silent = client.get();
    }
  }
  if (all < kPageClientsMax && of_host < kPageClientsPerHostMax) return true;
  // Of those that say nothing the oldest goes, whosever it is where all places are taken.
  if (of_host >= kPageClientsPerHostMax && silent != nullptr && silent->host() != host) {
    silent = nullptr;
    for (const auto& client : clients_) {
      const bool fits = client->host() == host && client->is_silent();
      if (fits && (silent == nullptr || client->since() < silent->since())) silent = client.get();
    }
  }
  if (silent == nullptr) return false;
  silent->End();
  refused_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace tessera

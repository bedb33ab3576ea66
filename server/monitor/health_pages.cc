#include "server/monitor/health_pages.h"

#include <map>
#include <utility>

#include <CivetServer.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"

namespace tessera {
namespace {

using Serves = std::function<bool()>;

// The server's pages are found by the server, as the library gives its callbacks nothing else.
class Pages {
 public:
  void Add(const mg_context* server, Serves serves) {
    absl::MutexLock lock(&mutex_);
    servers_[server] = std::move(serves);
  }
  void Remove(const mg_context* server) {
    absl::MutexLock lock(&mutex_);
    servers_.erase(server);
  }
  Serves Of(const mg_context* server) const {
    absl::MutexLock lock(&mutex_);
    const auto found = servers_.find(server);
    return found == servers_.end() ? Serves() : found->second;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<const mg_context*, Serves> servers_ ABSL_GUARDED_BY(mutex_);
};

// The pages of all endpoints. They are never destroyed, as the library's threads may ask until the process ends.
Pages& AllPages() {
  static auto* const pages = new Pages;
  return *pages;
}

// Whether the server that this thread is starting serves.
thread_local Serves* starting = nullptr;

void OnStart(const mg_context* server) {
  // The library calls this on the thread that starts the server, which has set `starting`.
  if (starting != nullptr) AllPages().Add(server, *starting);
}

void OnEnd(const mg_context* server) { AllPages().Remove(server); }

}  // namespace

HealthPages::HealthPages(Serves serves, CivetCallbacks* callbacks) {
  TESSERA_CHECK(starting == nullptr);
  starting = new Serves(std::move(serves));
  callbacks->init_context = OnStart;
  callbacks->exit_context = OnEnd;
}

HealthPages::~HealthPages() { delete std::exchange(starting, nullptr); }

int AnswerHealth(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const absl::string_view path = request.local_uri, method = request.request_method;
  const bool asks_ready = path == "/readyz";
  if ((path != "/healthz" && !asks_ready) || (method != "GET" && method != "HEAD")) return 0;
  const Serves serves = AllPages().Of(mg_get_context(connection));
  const bool is_well = !asks_ready || !serves || serves();
  const absl::string_view text = is_well ? "ok\n" : "not serving\n";
  mg_printf(connection,
            "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
            "Connection: close\r\n\r\n",
            is_well ? "200 OK" : "503 Service Unavailable", static_cast<int>(text.size()));
  if (method == "GET") mg_write(connection, text.data(), text.size());
  return is_well ? 200 : 503;
}

}  // namespace tessera

// The page of one server: --page HOST:PORT.
#ifndef TESSERA_SERVER_SERVER_PAGE_H_
#define TESSERA_SERVER_SERVER_PAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/status.pb.h"
#include "server/page/http_server.h"
#include "server/page/page_site.h"
#include "server/rpc/live_coordinator.h"

namespace tessera {

// Serves from Start until its end.
class ServerPage {
 public:
  struct Options {
    // HOST:PORT; port 0 takes a free one.
    std::string address;
    // Asked on the page's thread; must not block for long.
    std::function<v1::JobStatus()> status;
    // Where events are from and buttons go to, which outlives the page; nullptr: never on this server.
    LiveCoordinator* live = nullptr;
  };

  // With the process's security (CurrentSecurity). Messages name --page.
  //   kInvalidArgument     the address is none, or its host is not known, or others would reach it without encryption
  //                        although nobody has said that it is meant
  //   kFailedPrecondition  the port is taken, or the address is not this machine's
  static absl::StatusOr<std::unique_ptr<ServerPage>> Start(Options options, const v1::Job& job);

  // Whether Start would take this address, which is given back at once; OK for "".
  static absl::Status Check(const std::string& address, const v1::Job& job);

  // "http://HOST:PORT/", with the port that was taken.
  const std::string& url() const { return url_; }
  const HttpServer& server() const { return *server_; }

 private:
  ServerPage() = default;

  std::string url_;
  std::unique_ptr<PageSite> site_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_PAGE_H_

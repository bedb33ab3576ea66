// A member of etcd, alone, for as long as a test lasts.
#ifndef TESSERA_TESTS_SERVER_ELECTION_REAL_ETCD_H_
#define TESSERA_TESTS_SERVER_ELECTION_REAL_ETCD_H_

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/etcd/etcd_client.h"

namespace tessera {

class RealEtcd {
 public:
  RealEtcd() : port_(FreePort()) {
    const char* temporary = getenv("TEST_TMPDIR");
    std::string folder = absl::StrCat(temporary != nullptr ? temporary : "/tmp", "/etcd-XXXXXX");
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    const std::string client = absl::StrCat("http://127.0.0.1:", port_);
    const std::string peer = absl::StrCat("http://127.0.0.1:", FreePort());
    const std::string cluster = "default=" + peer;
    process_ = fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execlp("etcd", "etcd", "--data-dir", folder.c_str(), "--listen-client-urls", client.c_str(),
             "--advertise-client-urls", client.c_str(), "--listen-peer-urls", peer.c_str(),
             "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster", cluster.c_str(),
             "--log-level", "error", static_cast<char*>(nullptr));
      _exit(127);
    }
    const auto probe = Client(absl::Seconds(1));
    const absl::Time end = SteadyNow() + absl::Seconds(30);
    while (true) {
      const absl::Status answer = probe->Get("probe").status();
      if (answer.ok()) break;
      INFO(answer.ToString());
      REQUIRE(SteadyNow() < end);
      absl::SleepFor(absl::Milliseconds(50));
    }
  }
  ~RealEtcd() {
    kill(process_, SIGCONT);
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Calls end after `timeout`: a disk may be slow, but where etcd is frozen they are to fail soon.
  std::unique_ptr<EtcdClient> Client(absl::Duration timeout = absl::Seconds(20)) const {
    return *EtcdClient::Create({{address()}, timeout});
  }
  // All of its threads stand when this returns.
  void Freeze() {
    kill(process_, SIGSTOP);
    REQUIRE(waitpid(process_, nullptr, WUNTRACED) == process_);
  }
  void Thaw() { kill(process_, SIGCONT); }

 private:
  // It was, a moment ago, and is below those that connections take by themselves.
  static int FreePort() {
    int low = 32768;
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low;
    low = std::min(low, 32768);
    std::random_device random;
    std::uniform_int_distribution<int> ports(low / 2, low - 1);
    for (int tries = 0; tries < 1000; ++tries) {
      const int s = socket(AF_INET, SOCK_STREAM, 0);
      REQUIRE(s >= 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(ports(random)));
      const int bound = bind(s, reinterpret_cast<sockaddr*>(&address), sizeof(address));
      close(s);
      if (bound == 0) return ntohs(address.sin_port);
    }
    FAIL("no port below " << low << " is free");
    return 0;
  }

  const int port_;
  pid_t process_ = -1;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_ELECTION_REAL_ETCD_H_

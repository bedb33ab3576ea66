// Servers that stand for election in a real etcd.
#include "server/election/server_election.h"

#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "tests/server/election/real_etcd.h"
#include "tests/server/monitor/http_client.h"

namespace tessera {
namespace {

constexpr char kPrefix[] = "tessera/digest";
constexpr char kKey[] = "tessera/digest/coordinator";
constexpr absl::Duration kPatience = absl::Seconds(30);

// One that stands, and what became of it.
class Candidate {
 public:
  Candidate(const RealEtcd& etcd, const std::string& address, absl::Duration ttl)
      : client_(etcd.Client(absl::Seconds(1))), election_(Options(address, ttl)) {
    election_.Start();
  }
  ~Candidate() { election_.Stop(); }

  void AwaitElected() {
    absl::MutexLock lock(&mutex_);
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&is_elected_), kPatience));
  }
  std::string AwaitDeposed() {
    absl::MutexLock lock(&mutex_);
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&is_deposed_), kPatience));
    return why_;
  }

 private:
  ServerElection::Options Options(const std::string& address, absl::Duration ttl) {
    ServerElection::Options options;
    options.etcd = client_.get();
    options.prefix = kPrefix;
    options.address = address;
    options.ttl = ttl;
    options.on_elected = [this](int64_t) {
      absl::MutexLock lock(&mutex_);
      is_elected_ = true;
      return absl::OkStatus();
    };
    options.on_deposed = [this](absl::string_view why) {
      absl::MutexLock lock(&mutex_);
      is_deposed_ = true;
      why_ = std::string(why);
    };
    return options;
  }

  const std::unique_ptr<EtcdClient> client_;
  absl::Mutex mutex_;
  bool is_elected_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_deposed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  ServerElection election_;
};

// The transactions that etcd has been asked for.
int64_t Transactions(const RealEtcd& etcd) {
  HttpClient http(etcd.port());
  http.Send("GET /metrics HTTP/1.0\r\nHost: here\r\n\r\n");
  const std::string all = http.ReadAll();
  constexpr absl::string_view kCounter = "grpc_server_started_total{grpc_method=\"Txn\"";
  for (absl::string_view line : absl::StrSplit(all, '\n')) {
    if (!absl::StartsWith(line, kCounter)) continue;
    double count = 0;
    REQUIRE(absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &count));
    return static_cast<int64_t>(count);
  }
  FAIL("no count of transactions in: " << all.substr(0, 2000));
  return 0;
}

// As --auto-compaction-retention does: what is older than now is forgotten.
void Compact(const RealEtcd& etcd) {
  const auto client = etcd.Client();
  EtcdTransaction write;
  write.guard = "nobody";
  write.puts = {{"tessera/digest/state", "x"}};
  int64_t revision = 0;
  for (int i = 0; i < 5; ++i) revision = client->Commit(write)->revision;
  const std::string body = absl::StrCat("{\"revision\": ", revision, "}");
  HttpClient http(etcd.port());
  http.Send(absl::StrCat("POST /v3/kv/compaction HTTP/1.0\r\nHost: here\r\nContent-Length: ",
                         body.size(), "\r\n\r\n", body));
  const std::string answer = http.ReadAll();
  INFO(answer);
  REQUIRE(answer.find(" 200 ") != std::string::npos);
}

TEST_CASE("who waits for the coordinator's key asks seldom, also when etcd has compacted",
          "[election][etcd]") {
  RealEtcd etcd;
  Candidate leads(etcd, "one:1", absl::Seconds(20));
  leads.AwaitElected();
  const auto client = etcd.Client();
  const auto key = client->Get(kKey);
  REQUIRE(key.ok());
  Candidate waits(etcd, "two:2", absl::Seconds(20));
  // What was when the key was made is gone: whoever watches from there hears so at once.
  Compact(etcd);
  CHECK(client->AwaitChange(kKey, (*key)->mod_revision, SteadyNow() + kPatience).ok());
  // A watch lasts for 2 s; one may be under way.
  absl::SleepFor(absl::Seconds(2));
  const absl::Time begin = SteadyNow();
  const int64_t before = Transactions(etcd);
  absl::SleepFor(absl::Seconds(6));
  const int64_t asked = Transactions(etcd) - before;
  CHECK(asked >= 1);
  // Each watch that has ended is followed by one, and two more may have been under way.
  CHECK(asked <= 2 + (SteadyNow() - begin) / absl::Seconds(2));
}

TEST_CASE("who is no longer the coordinator says what etcd has to do with it", "[election][etcd]") {
  RealEtcd etcd;
  Candidate leads(etcd, "one:1", absl::Seconds(5));
  leads.AwaitElected();
  etcd.Freeze();
  const std::string why = leads.AwaitDeposed();
  etcd.Thaw();
  INFO(why);
  CHECK(why.find("its lease in etcd is over: etcd at " + etcd.address() + ": ") == 0);
}

}  // namespace
}  // namespace tessera

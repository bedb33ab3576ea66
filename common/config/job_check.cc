#include "common/config/checkpoint_keys.h"
#include "common/config/job_check.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/config/codec_check.h"
#include "common/config/data_check.h"
#include "common/config/key_errors.h"
#include "common/config/local_check.h"
#include "common/config/model_check.h"
#include "common/config/train_check.h"
#include "common/layout/tensor_layout.h"
#include "common/method/catalog.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

class Checker {
 public:
  Checker(const Positions& positions, KeyErrors errors) : positions_(positions), errors_(errors) {}

  void Method(const v1::Job& job) {
    const tessera::Method* const method = MethodOf(job);
    if (method == nullptr) return;
    if (IsOfTensors(job.model()) && method->why_layers != nullptr) {
      if (Sound("method")) Fail("method", WhyNoTensors(job));
      return;
    }
    if (method->check != nullptr) method->check(job, &errors_);
  }

  void Train(const v1::Job& job) { CheckTrain(job, &errors_); }

  // An optimizer that needs whole matrices has none where servers, who have rows of them, apply it.
  void WholeMatrices(const v1::Job& job) {
    for (const absl::string_view key : {"model", "train", "method", "cluster", "codec"}) {
      if (!Sound(key)) return;
    }
    if (IsRule(job.train().optimizer())) return;
    const absl::StatusOr<Recipe> recipe = RecipeFor(job);
    if (!recipe.ok() || recipe->payload != PayloadKind::kGradient) return;
    Fail("train.optimizer",
         absl::StrCat("got muon with method ", recipe->name,
                      ", want another one: workers push gradients, and servers apply the optimizer "
                      "to the rows that they have, where muon needs whole matrices; methods whose "
                      "workers take steps of their own take it"));
  }

  void Device(const std::string& device) {
    // Only the form is checked: whether the machine and the build have the device only its worker can say.
    if (!Sound("cluster.device") || device == "cpu" || device == "cuda") return;
    absl::string_view ordinal = device;
    const bool digits = absl::ConsumePrefix(&ordinal, "cuda:") && !ordinal.empty() &&
                        ordinal.size() <= 3 &&
                        std::all_of(ordinal.begin(), ordinal.end(), absl::ascii_isdigit);
    if (digits) return;
    Fail("cluster.device", absl::StrCat("got ", Quoted(device), ", want cpu, cuda or cuda:N"));
  }

  void Servers(v1::Servers* servers) {
    if (!Sound("cluster.servers") || servers->addresses().empty()) return;
    const std::string list = "cluster.servers.addresses";
    std::map<std::string, int> seen;
    for (int i = 0; i < servers->addresses_size(); ++i) {
      const std::string& address = servers->addresses(i);
      const std::string key = absl::StrCat(list, ".", i);
      if (!IsHostPort(address)) {
        Fail(key,
             absl::StrCat("got ", Quoted(address),
                          ", want host:port with a port in [1, 65535], such as 10.0.0.1:7000"));
      } else if (absl::StartsWith(address, "0.0.0.0:") || absl::StartsWith(address, "[::]:")) {
        Fail(key, absl::StrCat("got ", Quoted(address),
                               ", want the name that others reach it by; the server's ",
                               "--listen ", address, " listens on all of its machine's addresses"));
      } else if (const auto [first, fresh] = seen.emplace(address, i); !fresh) {
        Fail(key, absl::StrCat("got ", Quoted(address),
                               " again, want each server once; it is item ", first->second));
      }
    }
    const bool counted = positions_.count("cluster.servers.count") > 0;
    if (counted && servers->count() != servers->addresses_size()) {
      Fail("cluster.servers.count",
           absl::StrCat("got ", servers->count(), " beside ", servers->addresses_size(),
                        " addresses, want the addresses alone"));
    }
    servers->set_count(servers->addresses_size());
  }

  void Etcd(const v1::CoordinatorPlace& place) {
    const std::string list = "cluster.coordinator.etcd";
    if (!Sound(list)) return;
    std::map<absl::string_view, int> seen;
    for (int i = 0; i < place.etcd_size(); ++i) {
      const std::string& member = place.etcd(i);
      const std::string key = absl::StrCat(list, ".", i);
      const absl::string_view address = absl::StripPrefix(member, "https://");
      if (!IsHostPort(address)) {
        Fail(key, absl::StrCat("got ", Quoted(member), ", want host:port or https://host:port"));
      } else if (const auto [first, fresh] = seen.emplace(address, i); !fresh) {
        Fail(key, absl::StrCat("got ", Quoted(member), " again, want each member once; it is item ",
                               first->second));
      }
    }
  }

  void Standbys(const v1::Cluster& cluster) {
    if (!Sound("cluster.replicas") || !Sound("cluster.servers") || !Sound("method")) return;
    if (cluster.replicas() == 0 || cluster.servers().count() >= 2) return;
    Fail("cluster.replicas",
         absl::StrCat("got 1, want 0 with cluster.servers ", cluster.servers().count(),
                      ": a standby is on another server than the one that it stands by"));
  }

  void Checkpoints(const v1::Checkpoint& checkpoint) {
    if (!Sound("checkpoint") || !Sound("method")) return;
    if (checkpoint.every_steps() == 0 || !checkpoint.directory().empty()) return;
    Fail("checkpoint.every_steps", absl::StrCat("got ", checkpoint.every_steps(),
                                                ", want checkpoint.directory as well, where they "
                                                "are kept"));
  }

  // Checkpoints on servers' own disks: as many servers as copies.
  void OwnDisks(const v1::Job& job) {
    if (!HasOwnDisks(job) || !Sound("checkpoint") || !Sound("cluster.servers")) return;
    const v1::Cluster& cluster = job.cluster();
    const v1::Checkpoint& checkpoint = job.checkpoint();
    if (checkpoint.copies() > cluster.servers().count()) {
      Fail("checkpoint.copies",
           absl::StrCat("got ", checkpoint.copies(), ", want at most ", cluster.servers().count(),
                        ", which is cluster.servers: each copy is on another server's disk; with "
                        "one copy, 1, a lost disk is a lost checkpoint"));
    }
  }

 private:
  bool Sound(absl::string_view key) const { return errors_.Sound(key); }
  void Fail(absl::string_view key, absl::string_view message) { errors_.Add(key, message); }

  const Positions& positions_;
  KeyErrors errors_;
};

}  // namespace

void CheckJob(const Positions& positions, v1::Job* job, JobErrors* errors) {
  Checker checker(positions, KeyErrors(positions, errors));
  CheckData(positions, *job, errors);
  CheckModel(positions, *job, errors);
  checker.Train(*job);
  checker.Checkpoints(job->checkpoint());
  if (job->has_cluster()) checker.Servers(job->mutable_cluster()->mutable_servers());
  CheckCodecs(positions, *job, errors);
  checker.Method(*job);
  checker.Device(job->cluster().device());
  checker.Etcd(job->cluster().coordinator());
  checker.Standbys(job->cluster());
  checker.OwnDisks(*job);
  checker.WholeMatrices(*job);
  CheckSecurityKeys(positions, *job, errors);
}

void RefuseOpenKeys(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  const KeyErrors keys(positions, errors);
  if (!keys.Sound("model") || !keys.Sound("method")) return;
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  if (!recipe.ok()) return;
  for (const std::string& key : recipe->open_keys) {
    keys.Add(key,
             "got auto, which tessera run and tessera launch choose before they start a process; "
             "want what tessera plan says is best");
  }
}

}  // namespace tessera

#include "common/config/job_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/config/codec_check.h"
#include "common/config/data_check.h"
#include "common/config/local_check.h"
#include "common/config/model_check.h"
#include "common/keyset/core_share.h"
#include "common/keyset/key_set.h"
#include "common/keyset/mean_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/parameters.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

class Checker {
 public:
  Checker(const Positions& positions, JobErrors* errors)
      : positions_(positions), errors_(*errors) {}

  // Nothing is wrong with `key` so far.
  bool Sound(absl::string_view key) const { return !errors_.Touches(key); }

  void Fail(absl::string_view key, absl::string_view message) {
    errors_.Add(PositionOf(positions_, key), key, message);
  }

  void Device(const std::string& device) {
    // Whether the machine and the build have it only its worker can say.
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

  // `pushes` of so many workers make an update.
  void Pushes(const std::string& key, int64_t pushes, int64_t workers) {
    if (!Sound(key) || !Sound("cluster.workers") || pushes <= workers) return;
    Fail(key, absl::StrCat("got ", pushes, ", want at most ", workers,
                           ", the number of workers (cluster.workers)"));
  }

  void Quorum(const v1::Diloco& diloco, int64_t workers) {
    const std::string key = "method.diloco.quorum";
    if (!Sound(key) || !Sound("method.diloco.asynchronous")) return;
    const v1::Quorum& quorum = diloco.quorum();
    if (diloco.asynchronous() && (quorum.pushes() > 0 || quorum.grace() > 0)) {
      Fail(key,
           "got a quorum beside asynchronous, want one or the other: with asynchronous nobody "
           "waits, so that there is nothing to close");
    } else if (quorum.pushes() == 0 && quorum.grace() > 0) {
      Fail(key + ".grace",
           "got a time without pushes, want both: grace runs once so many pushes are there, and "
           "with pushes 0 an update waits for all");
    } else {
      Pushes(key + ".pushes", quorum.pushes(), workers);
    }
  }

  // Exchanges that go on beside training.
  void Overlap(const v1::Method& method) {
    if (method.local_sgd().overlap() && method.local_sgd().average_state()) {
      Fail("method.local_sgd.overlap",
           "got true beside average_state, want one or the other: a state that comes an exchange "
           "late does not belong to the parameters that it would move");
    }
    const v1::Diloco& diloco = method.diloco();
    if (diloco.overlap() && (diloco.asynchronous() || diloco.quorum().pushes() > 0)) {
      Fail("method.diloco.overlap",
           absl::StrCat("got true beside ", diloco.asynchronous() ? "asynchronous" : "a quorum",
                        ", want one or the other: nobody waits there, so that there is nothing to "
                        "overlap"));
    }
  }

  void Method(const v1::Job& job) {
    const v1::Method& method = job.method();
    const int64_t workers = std::max<int64_t>(1, job.cluster().workers());
    if (method.has_softsync()) {
      Pushes("method.softsync.pushes", method.softsync().pushes(), workers);
    }
    if (method.has_diloco()) Quorum(method.diloco(), workers);
    Overlap(method);
    if (method.has_slim_dp()) Core(job);
    if (method.has_ist()) {
      Subnets(job, "ist", workers);
      Tail(job);
    }
    if (method.has_ensemble()) Subnets(job, "ensemble", workers);
    if (method.has_decentralized()) WarmUp(job);
    if (method.has_layer_separation()) Halves(job);
    const std::string average = "method.local_sgd.average_state";
    if (method.local_sgd().average_state() && Sound(average) && Sound("train.optimizer") &&
        StateNames(job.train().optimizer()).empty()) {
      Fail(average,
           "got true, want false: sgd without momentum has no state, so that there is nothing to "
           "average");
    }
  }

  void Halves(const v1::Job& job) {
    const std::string key = "method.layer_separation.linear_workers";
    const int64_t workers = job.cluster().workers();
    const int64_t linear = job.method().layer_separation().linear_workers();
    if (Sound(key) && Sound("cluster.workers") && 2 * linear > workers) {
      Fail(key, absl::StrCat("got ", linear, ", want at most ", workers / 2, " of the ", workers,
                             " workers (cluster.workers)",
                             workers < 2 ? ", which must be 2 or more" : "",
                             ": each of the others sends its activations to one of them"));
    }
    const int64_t piece = job.train().micro_batch();
    if (Sound("train") && piece > 0 && piece < job.train().batch_size()) {
      Fail("train.micro_batch",
           absl::StrCat("got ", piece,
                        ", want 0 with method layer_separation: the activations of a "
                        "minibatch are sent whole"));
    }
    const absl::StatusOr<LayerCut> cut = CutBeforeLinear(job.model());
    if (Sound("model") && !cut.ok()) {
      Fail("model.layers", absl::StrCat(absl::StripPrefix(cut.status().message(), "model.layers: "),
                                        " with method layer_separation"));
    }
  }

  // The rest of the job follows it.
  void WarmUp(const v1::Job& job) {
    const std::string key = "method.decentralized.warmup_steps";
    const int64_t warmup = job.method().decentralized().warmup_steps();
    if (!Sound(key) || !Sound("train") || job.train().steps() == 0) return;
    if (warmup == 0 || warmup < job.train().steps()) return;
    Fail(key, absl::StrCat("got ", warmup, ", want less than ", job.train().steps(),
                           ", which is train.steps: the others would never begin"));
  }

  // Every worker has a server of its own.
  void ServersBeside(const v1::Job& job) {
    if (!job.method().has_decentralized()) return;
    if (!Sound("cluster.servers") || !Sound("cluster.workers")) return;
    const int64_t servers = job.cluster().servers().count();
    const int64_t workers = job.cluster().workers();
    if (servers == workers) return;
    const bool is_listed = !job.cluster().servers().addresses().empty();
    Fail(is_listed ? "cluster.servers.addresses" : "cluster.servers.count",
         absl::StrCat("got ", servers, ", want ", workers,
                      ", the number of workers (cluster.workers): with decentralized every worker "
                      "has a server of its own beside it"));
  }

  void Standbys(const v1::Job& job) {
    if (!Sound("cluster.replicas") || !Sound("cluster.servers") || !Sound("method")) return;
    const v1::Cluster& cluster = job.cluster();
    if (cluster.replicas() == 0) return;
    if (job.method().has_decentralized()) {
      Fail("cluster.replicas",
           "got 1, want 0 with method decentralized: every server has the whole model already");
    } else if (cluster.servers().count() < 2) {
      Fail("cluster.replicas",
           absl::StrCat("got 1, want 0 with cluster.servers ", cluster.servers().count(),
                        ": a standby is on another server than the one that it stands by"));
    }
  }

  void Core(const v1::Job& job) {
    const v1::SlimDp& slim = job.method().slim_dp();
    if (!Sound("method.slim_dp")) return;
    if (slim.beta() > slim.alpha()) {
      Fail(
          "method.slim_dp.beta",
          absl::StrCat("got ", slim.beta(), ", want at most ", slim.alpha(),
                       ", which is method.slim_dp.alpha: the core is a part of what is exchanged"));
      return;
    }
    const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
    if (!Sound("model") || !Sound("cluster.servers") || !shape.ok()) return;
    const v1::Servers& list = job.cluster().servers();
    const int servers = std::max({1, static_cast<int>(list.count()), list.addresses_size()});
    const CoreShare share{slim.alpha(), slim.beta()};
    int64_t moved = CoreCount(share, shape->size);
    for (const ShardSlices& owned : DenseKeys(*shape, servers).slices) {
      moved += ExplorerCount(share, shape->size, owned.size, 0);
    }
    if (moved > 0 || share.is_whole()) return;
    const double least = std::min(1.0, 1.01 * servers / static_cast<double>(shape->size));
    Fail("method.slim_dp.alpha",
         absl::StrCat("got ", slim.alpha(), ", want ", absl::StrFormat("%.3g", least),
                      " or more, which is an entry for each server: of this model's ", shape->size,
                      " entries an exchange would move none"));
  }

  // Hidden neurons are dealt to the workers.
  void Subnets(const v1::Job& job, absl::string_view method, int64_t workers) {
    if (!Sound("model") || !Sound("cluster.workers")) return;
    std::vector<int64_t> widths;
    for (const v1::Layer& layer : job.model().layers()) {
      const LayerKind& kind = LayerKindOf(layer);
      if (kind.makes_units()) widths.push_back(kind.units(layer));
    }
    if (widths.size() < 2) {
      Fail("model.layers",
           absl::StrCat("got one linear layer, want at least two: ", method,
                        " deals hidden neurons to the workers, and there are none"));
      return;
    }
    const int64_t least = *std::min_element(widths.begin(), widths.end() - 1);
    if (least >= workers) return;
    Fail("cluster.workers",
         absl::StrCat("got ", workers, ", want at most ", least,
                      ", the neurons of the smallest hidden layer, so that every "
                      "worker has a part of each"));
  }

  // The last minibatches of a job of subnets are on the whole model.
  void Tail(const v1::Job& job) {
    const std::string key = "method.ist.tail_steps";
    const v1::Ist& ist = job.method().ist();
    if (ist.tail_steps() == 0 || !Sound("method.ist") || !Sound("model") || !Sound("train")) return;
    const std::string got = absl::StrCat("got ", ist.tail_steps(), ", want ");
    if (ist.tail_steps() < ist.local_steps()) {
      Fail(key,
           absl::StrCat(got, "at least ", ist.local_steps(),
                        ", which is method.ist.local_steps, or 0: it begins where a round ends"));
      return;
    }
    if (job.train().steps() > 0 && ist.tail_steps() >= job.train().steps()) {
      Fail(key, absl::StrCat(got, "less than ", job.train().steps(),
                             ", which is train.steps; for local steps alone use local_sgd"));
      return;
    }
    const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
    if (!shape.ok()) return;
    const std::vector<int> scaled =
        WeightsOfMeanShare(job.model(), *shape, GroupsOf(job.model(), *shape));
    if (scaled.empty()) return;
    Fail(key, absl::StrCat(got, "0 with this model: ", shape->parameters[scaled.front()].name,
                           " sums over hidden neurons without a batch_norm behind it. Subnets are "
                           "trained on sums of fewer terms, which evaluation makes up for, and the "
                           "whole model is not; add a batch_norm after that layer"));
  }

  void Nesterov(const v1::Optimizer& optimizer) {
    if (!Sound("train.optimizer") || !optimizer.sgd().nesterov()) return;
    if (optimizer.sgd().momentum() != 0) return;
    Fail("train.optimizer.sgd.nesterov",
         "got true with momentum 0, want a momentum above 0: it says how momentum is applied");
  }

  void Schedule(const v1::Schedule& schedule) {
    if (!Sound("train.schedule")) return;
    const v1::RateDecay& decay = schedule.decay();
    const auto within = [&](int64_t limit, absl::string_view name, absl::string_view why) {
      if (schedule.warmup() <= limit) return;
      Fail("train.schedule.warmup", absl::StrCat("got ", schedule.warmup(), ", want at most decay.",
                                                 name, ", which is ", limit, ": ", why));
    };
    if (decay.has_cosine()) {
      within(decay.cosine().examples(), "cosine.examples",
             "the rate would be at its floor before it is warm");
    } else if (decay.has_step()) {
      within(decay.step().every(), "step.every", "the rate would drop before it is warm");
    }
  }

  void Checkpoints(const v1::Job& job) {
    const v1::Checkpoint& checkpoint = job.checkpoint();
    if (!Sound("checkpoint") || !Sound("method")) return;
    // Replicas that go on by themselves have no state in common.
    const bool has_more = job.method().has_decentralized();
    for (const auto& [key, path] : {std::make_pair("checkpoint.directory", &checkpoint.directory()),
                                    std::make_pair("checkpoint.restore", &checkpoint.restore())}) {
      if (!has_more || path->empty()) continue;
      Fail(key,
           absl::StrCat("got ", Quoted(*path),
                        ", want none with decentralized: every replica is a copy of the model, and "
                        "a new server copies one that is there"));
    }
    if (checkpoint.every_steps() == 0 || !checkpoint.directory().empty()) return;
    Fail("checkpoint.every_steps", absl::StrCat("got ", checkpoint.every_steps(),
                                                ", want checkpoint.directory as well, where they "
                                                "are kept"));
  }

 private:
  const Positions& positions_;
  JobErrors& errors_;
};

}  // namespace

void CheckJob(const Positions& positions, v1::Job* job, JobErrors* errors) {
  Checker checker(positions, errors);
  CheckData(positions, *job, errors);
  CheckModel(positions, *job, errors);
  checker.Nesterov(job->train().optimizer());
  checker.Schedule(job->train().schedule());
  checker.Checkpoints(*job);
  checker.Method(*job);
  CheckCodecs(positions, *job, errors);
  checker.Device(job->cluster().device());
  if (job->has_cluster()) checker.Servers(job->mutable_cluster()->mutable_servers());
  checker.Etcd(job->cluster().coordinator());
  checker.ServersBeside(*job);
  checker.Standbys(*job);
  CheckSecurityKeys(positions, *job, errors);
}

}  // namespace tessera

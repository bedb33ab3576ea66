#include "deploy/cli/launch/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
#include "deploy/cli/counted.h"

namespace tessera {
namespace {

constexpr int kPortMax = 65535;

// Deals processes to hosts, and collects what is wrong.
class Dealer {
 public:
  Dealer(const v1::Job& job, const std::vector<LaunchHost>& hosts,
         const std::vector<std::set<int>>& taken, int port)
      : job_(job), hosts_(hosts), taken_(taken), port_(port) {}

  // The hosts of `count` processes, in turn; those that want a number of their own get that.
  std::vector<PlacedProcess> Deal(const char* kind, size_t count,
                                  std::optional<int> LaunchHost::*wanted) {
    // What is left of each host's number, and for a host without one no limit.
    std::vector<size_t> room;
    size_t fixed = 0, open = 0;
    for (const LaunchHost& host : hosts_) {
      const std::optional<int> own = host.*wanted;
      room.push_back(own.has_value() ? static_cast<size_t>(*own) : count);
      fixed += own.has_value() ? static_cast<size_t>(*own) : 0;
      open += !own.has_value();
    }
    if (fixed > count || (open == 0 && fixed < count)) {
      errors_.push_back(absl::StrCat("hosts: ", kind, "s: they name ", fixed, ", the job has ",
                                     count, "; correct the hosts file or cluster.", kind, "s"));
      return {};
    }
    // What hosts without a number share, these may not have.
    size_t shared = count - fixed;
    std::vector<PlacedProcess> placed;
    for (size_t host = 0; placed.size() < count; host = (host + 1) % hosts_.size()) {
      const bool is_open = !(hosts_[host].*wanted).has_value();
      if (room[host] == 0 || (is_open && shared == 0)) continue;
      --room[host];
      shared -= is_open;
      placed.push_back({host, ""});
    }
    return placed;
  }

  // Servers at the addresses that the job lists, or dealt, with addresses of their own.
  std::vector<PlacedProcess> Servers() {
    const auto& addresses = job_.cluster().servers().addresses();
    if (addresses.empty()) {
      const auto count = static_cast<size_t>(job_.cluster().servers().count());
      std::vector<PlacedProcess> placed = Deal("server", count, &LaunchHost::servers);
      for (PlacedProcess& server : placed) server.address = NextAddress(server.host);
      return placed;
    }
    std::vector<PlacedProcess> placed;
    for (const std::string& address : addresses) {
      const absl::optional<HostPort> parts = ParseHostPort(address);
      const std::string name = parts.has_value() ? parts->host : "";
      const auto found = std::find_if(
          hosts_.begin(), hosts_.end(),
          [&name](const LaunchHost& host) { return host.address == name || host.name == name; });
      if (found == hosts_.end()) {
        errors_.push_back(absl::StrCat("cluster.servers: \"", address,
                                       "\" is on none of the hosts, want its host among them; a "
                                       "hosts file may say address=",
                                       name));
        continue;
      }
      placed.push_back({static_cast<size_t>(found - hosts_.begin()), address});
    }
    return placed;
  }

  // Servers on the hosts of workers: the last ones follow linear workers, those before them the others, each in turn.
  std::vector<PlacedProcess> ServersBeside(const std::vector<PlacedProcess>& workers,
                                           const LayerSplit& split) {
    const auto count = static_cast<size_t>(job_.cluster().servers().count());
    const size_t fronts = count - static_cast<size_t>(split.linear_servers);
    const size_t front_workers = workers.size() - static_cast<size_t>(split.linear_workers);
    std::vector<PlacedProcess> placed;
    for (size_t rank = 0; rank < count; ++rank) {
      const size_t beside =
          rank < fronts ? rank % front_workers
                        : front_workers + (rank - fronts) % (workers.size() - front_workers);
      placed.push_back({workers[beside].host, NextAddress(workers[beside].host)});
    }
    return placed;
  }

  // The next free port of the host, of which hosts with the same address have the same.
  std::string NextAddress(size_t host) {
    const std::string& address = hosts_[host].address;
    for (int port = port_; port <= kPortMax; ++port) {
      const bool is_taken =
          taken_[host].count(port) > 0 || !given_.insert(absl::StrCat(address, "/", port)).second;
      if (!is_taken) return HostPort{address, port}.ToString();
    }
    errors_.push_back(absl::StrCat(hosts_[host].name, ": no port from ", port_, " to ", kPortMax,
                                   " is free; want another --port"));
    return "";
  }

  const std::vector<std::string>& errors() const { return errors_; }

 private:
  const v1::Job& job_;
  const std::vector<LaunchHost>& hosts_;
  const std::vector<std::set<int>>& taken_;
  const int port_;
  std::set<std::string> given_;
  std::vector<std::string> errors_;
};

// "0, 2" of the ranks on a host.
std::string RanksOn(const std::vector<PlacedProcess>& processes, size_t host) {
  std::vector<std::string> ranks;
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    if (processes[rank].host == host) ranks.push_back(absl::StrCat(rank));
  }
  return ranks.empty() ? "-" : absl::StrJoin(ranks, ", ");
}

// "0 (:7000), 2 (:7001)".
std::string ServersOn(const std::vector<PlacedProcess>& servers, size_t host) {
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < servers.size(); ++rank) {
    if (servers[rank].host != host) continue;
    const absl::optional<HostPort> address = ParseHostPort(servers[rank].address);
    texts.push_back(absl::StrCat(rank, " (:", address.has_value() ? address->port : 0, ")"));
  }
  return texts.empty() ? "-" : absl::StrJoin(texts, ", ");
}

// The shards whose standbys are on a host: each is followed by the server after its own.
std::string StandbysOn(const std::vector<PlacedProcess>& servers, size_t host) {
  std::vector<std::string> shards;
  for (size_t shard = 0; shard < servers.size(); ++shard) {
    if (servers[(shard + 1) % servers.size()].host == host) shards.push_back(absl::StrCat(shard));
  }
  return shards.empty() ? "-" : absl::StrJoin(shards, ", ");
}

// Whether servers are placed beside the workers that have the same layers.
bool ServersFollow(const v1::Job& job, const Recipe& recipe, const std::vector<LaunchHost>& hosts) {
  return recipe.split && recipe.split->linear_servers > 0 &&
         job.cluster().servers().addresses().empty() &&
         std::none_of(hosts.begin(), hosts.end(),
                      [](const LaunchHost& host) { return host.servers.has_value(); });
}

}  // namespace

bool JobPlacement::HasWorkers(size_t host) const {
  return std::any_of(workers.begin(), workers.end(),
                     [host](const PlacedProcess& worker) { return worker.host == host; });
}

absl::StatusOr<JobPlacement> PlaceJob(const v1::Job& job, const Recipe& recipe,
                                      const std::vector<LaunchHost>& hosts,
                                      const std::vector<std::set<int>>& taken, int port) {
  Dealer dealer(job, hosts, taken, port);
  JobPlacement placement;
  placement.has_standbys = job.cluster().replicas() > 0;
  const auto workers = static_cast<size_t>(job.cluster().workers());
  if (ServersFollow(job, recipe, hosts)) {
    placement.workers = dealer.Deal("worker", workers, &LaunchHost::workers);
    // There are less where counts of hosts do not add up.
    if (placement.workers.size() == workers) {
      placement.servers = dealer.ServersBeside(placement.workers, *recipe.split);
    }
  } else {
    // Servers first, as replicas' workers follow them.
    placement.servers = dealer.Servers();
    if (recipe.placement == Placement::kReplicated && placement.servers.size() == workers) {
      for (const PlacedProcess& server : placement.servers) {
        placement.workers.push_back({server.host, ""});
      }
    } else {
      placement.workers = dealer.Deal("worker", workers, &LaunchHost::workers);
    }
  }
  for (size_t rank = 0; rank < placement.workers.size(); ++rank) {
    const bool is_called =
        recipe.split.has_value() && recipe.split->is_linear(Rank(static_cast<uint32_t>(rank)));
    PlacedProcess& worker = placement.workers[rank];
    if (is_called) worker.address = dealer.NextAddress(worker.host);
  }
  if (!dealer.errors().empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(dealer.errors(), "\n"));
  }
  return placement;
}

std::string PlacementTable(const std::vector<LaunchHost>& hosts, const JobPlacement& placement,
                           const std::vector<std::string>& notes) {
  std::vector<std::vector<std::string>> rows = {
      {"host", "address", "servers", "standbys of", "workers", "bundle"}};
  for (size_t host = 0; host < hosts.size(); ++host) {
    rows.push_back({hosts[host].name, hosts[host].address, ServersOn(placement.servers, host),
                    placement.has_standbys ? StandbysOn(placement.servers, host) : "-",
                    RanksOn(placement.workers, host), notes[host]});
  }
  // Each column is as wide as its widest cell.
  const size_t columns = rows[0].size();
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      if (column == 3 && !placement.has_standbys) continue;
      size_t width = 0;
      for (const std::vector<std::string>& each : rows) {
        width = std::max(width, each[column].size());
      }
      absl::StrAppend(&line, row[column], std::string(width - row[column].size() + 2, ' '));
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace tessera

// What happens to the servers of a simulated job that have no standbys: they die, and where checkpoints are kept
// others come in their place.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

// The network says that a machine is gone when nothing has come from it for so long.
constexpr absl::Duration kSilenceMost = absl::Seconds(3);

}  // namespace

void SimJob::KeepCheckpoints(JobFacts* facts, SimCoordinator::Options* control) {
  folder_ = std::make_unique<SimFolder>(1 + static_cast<int64_t>(dice_.Below(3)));
  folder_->SetListener([this](const SimFolder::Whole& whole) { OnWhole(whole); });
  facts->checkpoints = true;
  facts->checkpoint_every = dice_.Chance(0.1) ? 0 : 2 + static_cast<int64_t>(dice_.Below(10));
  Manifest model;
  model.layout_hash = facts->layout_hash;
  model.states = recipe_.subnets ? 0 : recipe_.make_rule()->state_count();
  for (const ParameterSpec& spec : shape_.parameters) {
    model.parameters.push_back({spec.name, spec.rows, spec.columns, spec.is_vector, 1});
  }
  model.model_parameters = static_cast<int64_t>(shape_.parameters.size());
  model.shards.resize(static_cast<size_t>(facts->servers));
  facts->model_manifest = std::make_shared<const Manifest>(std::move(model));
  control->folder = folder_.get();
  control->has_faults = options_.faults && !OnlyLeaves();
  if (options_.faults) harm_.OnDiskFails();
  control->on_whole = [this](uint64_t step) { checker_.OnKnownWhole(step); };
}

void SimJob::OnWhole(const SimFolder::Whole& whole) {
  std::vector<uint64_t> copies;
  std::vector<Checker::SavedWorker> workers;
  for (const CheckpointFile& listed : whole.manifest.files) {
    const SimFolder::File& file = whole.files.at(listed.name);
    if (file.listed.sum != listed.sum) {
      checker_.Violate(absl::StrCat("checkpoint of step ", whole.manifest.step, ": \"", listed.name,
                                    "\" is not the file that was listed"));
    }
  }
  for (int shard = 0; shard < servers_count_; ++shard) {
    const auto file = whole.files.find(ShardFileName(shard, servers_count_));
    if (file != whole.files.end()) copies.push_back(file->second.copy);
  }
  for (const CheckpointMember& member : whole.manifest.members) {
    const auto file = whole.files.find(WorkerFileName(member.rank));
    if (file == whole.files.end()) continue;
    const v1::Progress& progress = file->second.progress;
    workers.push_back({Rank(member.rank), Exchange(progress.exchange()), progress.step()});
  }
  checker_.OnWhole(whole.manifest, copies, workers);
  last_whole_ = whole.manifest;
}

SimServer::Made SimJob::MakeShard(ShardId shard) {
  Shard::Options options = ShardOptions(shard);
  SimServer::Made made;
  made.copy = checker_.AddCopy(shard, SlicesOf(shape_, shard, servers_count_), 0);
  options.policy =
      checker_.Recorded(made.copy, Mutated(std::move(options.policy), options_.mutation));
  made.shard = std::make_unique<Shard>(std::move(options));
  checker_.SetShard(made.copy, made.shard.get());
  return made;
}

void SimJob::StartServer(int rank) {
  const ShardId shard(rank);
  SimServer::Made made = MakeShard(shard);
  SimServer::Options server;
  server.rank = shard;
  server.copy = made.copy;
  server.shard = std::move(made.shard);
  server.mutation = options_.mutation;
  server.folder = folder_.get();
  server.make_shard = [this, shard] { return MakeShard(shard); };
  server.has_faults = options_.faults && !OnlyLeaves();
  // Another process may hold the rank still, as far as the coordinator knows.
  if (options_.checkpoints) server.on_refused = [this, rank] { EndServer(rank); };
  server.on_left = [this, rank] { OnServerLeft(rank); };
  all_servers_.push_back(
      std::make_unique<SimServer>(&network_, coordinator_.get(), &checker_, std::move(server)));
  servers_[rank] = all_servers_.back().get();
  doors_[rank]->SetServer(servers_[rank]);
}

void SimJob::RestartServer(int rank) {
  network_.After(chaos_, dice_.Between(absl::Milliseconds(20), absl::Seconds(2)), [this, rank] {
    if (network_.IsAlive(servers_[rank]->node()) || coordinator_->ended()) return;
    StartServer(rank);
  });
}

void SimJob::EndServer(int rank) {
  SimServer* const server = servers_[rank];
  if (!network_.IsAlive(server->node())) return;
  network_.Kill(server->node());
  harm_.OnKilled(static_cast<uint32_t>(rank));
  const auto notice = [this, rank, connection = server->connection()] {
    coordinator_->Detach(ShardId(rank), connection);
  };
  if (dice_.Chance(0.5)) {
    notice();
  } else if (options_.checkpoints) {
    network_.After(chaos_, dice_.Between(absl::ZeroDuration(), kSilenceMost), notice);
  }
  if (options_.checkpoints) RestartServer(rank);
}

void SimJob::KillServer() {
  // Before the start a job waits for another server to come, which no fault of ours brings.
  if (server_killed_ || !coordinator_->state().membership().started()) return;
  if (!coordinator_->has_kept_all()) return;  // The start may be undone.
  server_killed_ = true;
  EndServer(static_cast<int>(dice_.Below(servers_.size())));
}

void SimJob::OnServerLeft(int rank) {
  SimServer* const server = servers_[rank];
  if (!network_.IsAlive(server->node())) return;
  ++left_;
  network_.Kill(server->node());
  harm_.OnKilled(static_cast<uint32_t>(rank));
  coordinator_->Detach(ShardId(rank), server->connection());
  const Coordinator& coordinator = coordinator_->state();
  // Where a disk has failed whoever leaves goes from the checkpoint before.
  const bool is_exact = OnlyLeaves() && coordinator.facts().synchronous &&
                        !coordinator.facts().subnets && coordinator_->is_here() &&
                        coordinator.membership().paused() &&
                        coordinator.Status(queue_.now()).checkpoint().failed_number() == 0;
  if (is_exact) {
    for (int shard = 0; shard < servers_count_; ++shard) {
      if (servers_[shard]->version() == last_whole_.shards[shard].version) continue;
      checker_.Violate(absl::StrCat("server ", rank, " has left: shard ", shard, " is of version ",
                                    servers_[shard]->version(), ", and the checkpoint of ",
                                    last_whole_.shards[shard].version));
    }
  }
  RestartServer(rank);
}

void SimJob::StrikeServer() {
  const int rank = static_cast<int>(dice_.Below(servers_.size()));
  if (OnlyLeaves() || (options_.leaves && dice_.Chance(0.5))) return servers_[rank]->Leave();
  // A shard that is lost before there is a checkpoint ends the job: seldom.
  const bool may_lose = checker_.wholes() > 0 || dice_.Chance(0.05);
  const absl::Duration lease = coordinator_->state().facts().lease_timeout;
  switch (dice_.Below(5)) {
    case 0:
    case 1:
      if (may_lose) EndServer(rank);
      if (may_lose && dice_.Chance(0.1)) EndServer(static_cast<int>(dice_.Below(servers_.size())));
      return;
    case 2:
      return network_.Freeze(
          servers_[rank]->node(),
          queue_.now() + dice_.Between(absl::ZeroDuration(), may_lose ? 2.5 * lease : lease / 3));
    case 3:
      return network_.CutLink(servers_[rank]->node(), coordinator_->node(),
                              may_lose ? 2.5 * lease : lease / 3);
    case 4:
      if (coordinator_->is_here()) coordinator_->AskForCheckpoint();
      return;
  }
}

void SimJob::Rejoin(uint32_t rank) {
  network_.After(chaos_, dice_.Between(absl::ZeroDuration(), absl::Milliseconds(20)),
                 [this, rank] { StartWorker(rank); });
}

}  // namespace tessera

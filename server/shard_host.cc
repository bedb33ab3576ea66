#include "server/shard_host.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "server/shard/forms/form_table.h"

namespace tessera {
namespace {

// Bytes of values that may be on their way to a standby, beside twice the shard.
constexpr int64_t kQueueBytes = int64_t{64} << 20;

}  // namespace

ShardHost::ShardHost(Options options)
    : options_(std::move(options)),
      service_(std::make_unique<ParameterService>(
          ShardId(options_.is_replica ? 0 : options_.rank), options_.job_digest,
          options_.half_open_pushes_per_host, options_.unread_bytes_per_host)),
      roles_(options_.shard_count) {
  // Before any shard is made, so that blocks lie where workers can read them.
  if (options_.shares_memory) {
    const absl::Status shared = service_->ShareMemory();
    if (!shared.ok()) {
      Log(LogLevel::kInfo,
          absl::StrCat("server: all payloads go by TCP why=\"", shared.message(), "\""));
    }
  }
  // A replica may be started again at the same address, with the same rank: its life tells the two apart.
  if (options_.is_replica) {
    std::random_device device;
    life_ = (uint64_t{device()} << 32) | device() | 1;
    service_->SetLife(life_);
  }
  if (!options_.keeps_standbys) return;
  FollowedShards::Options followed;
  followed.job_digest = options_.job_digest;
  followed.layout_hash = options_.layout_hash;
  // Standbys are made beforehand, as initial values of a large shard take long.
  followed.make_shard = [this](ShardId shard) {
    return MakeShard(static_cast<uint32_t>(shard.value()));
  };
  followed_ = std::make_unique<FollowedShards>(std::move(followed));
  standbys_ = std::make_unique<StandbyHost>(followed_.get());
}

ShardHost::~ShardHost() {
  Disconnect();
  // Before the shards' threads end, which answer them.
  service_->EndLocalCalls();
}

std::unique_ptr<Shard> ShardHost::MakeShard(uint32_t rank, bool awaits_load) const {
  Failpoint("shard.make");
  Shard::Options shard = options_.shard_options(rank);
  shard.awaits_load = awaits_load;
  auto made = std::make_unique<Shard>(std::move(shard));
  // The process ends: nobody else has the values of these shards.
  if (!made->initial().ok()) options_.on_end(made->initial());
  return made;
}

std::vector<grpc::Service*> ShardHost::services() {
  std::vector<grpc::Service*> services = {service_->service()};
  if (standbys_ != nullptr) services.push_back(standbys_->service());
  return services;
}

void ShardHost::Start(const std::string& coordinator, const std::string& address) {
  coordinator_ = coordinator;
  address_ = address;
  // Without standbys every server leads its own shard from the start, and no order says so.
  if (!options_.keeps_standbys) {
    std::unique_ptr<Shard> own = MakeShard(options_.rank);
    if (!own->initial().ok()) return;
    absl::MutexLock lock(&mutex_);
    Lead(options_.rank, std::move(own), 0);
    return;
  }
  HostLink::Options link;
  link.coordinator = coordinator_;
  link.find_coordinator = options_.find_coordinator;
  link.open_channel = options_.open_coordinator;
  link.hello.set_rank(options_.rank);
  link.hello.set_job_digest(options_.job_digest);
  link.hello.set_job_text(options_.job_text);
  link.hello.set_initial_sum(options_.initial_sum);
  link.hello.set_address(address_);
  link.hello.set_layout_hash(options_.layout_hash);
  link.lease_timeout = options_.lease_timeout;
  link.on_order = [this](const v1::HostOrder& order) { OnOrder(order); };
  link.message = [this] { return Message(); };
  link.on_end = [this](absl::Status status) { End(std::move(status)); };
  // The preparer must run before an order comes that wants a standby.
  preparer_ = std::thread([this] { PrepareStandbys(); });
  absl::MutexLock lock(&mutex_);
  host_link_ = std::make_unique<HostLink>(std::move(link));
  absl::MutexLock bell(&bell_->mutex);
  bell_->link = host_link_.get();
}

void ShardHost::Disconnect() {
  std::unique_ptr<HostLink> host_link;
  std::vector<std::unique_ptr<AttachLink>> links;
  {
    absl::MutexLock lock(&mutex_);
    disconnected_ = true;
    host_link = std::move(host_link_);
    for (auto& [rank, led] : led_) links.push_back(std::move(led.link));
  }
  {
    absl::MutexLock lock(&bell_->mutex);
    bell_->link = nullptr;
  }
  // The links' threads may wait for the mutex, so that the links end without it.
  host_link.reset();
  links.clear();
  prepare_.Notify();
  if (preparer_.joinable()) preparer_.join();
  std::vector<std::unique_ptr<ShardLoader>> loaders;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [rank, led] : led_) loaders.push_back(std::move(led.loader));
  }
  // What they read has nowhere to go.
  loaders.clear();
  absl::MutexLock lock(&mutex_);
  // Answers that wait for a standby are refused: the standby may lead by now, and has not got what they tell of.
  const absl::Status gone =
      absl::UnavailableError("the server ends, and another may lead its shard");
  for (auto& [rank, led] : led_) {
    led.copier.reset();
    if (led.replicator != nullptr) led.replicator->End();
    led.shard->Post([gone](ServedShard& served) { served.gate().Abdicate(gone); });
  }
}

void ShardHost::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    // Several links may end at once: the first one speaks for the process.
    if (ended_ || disconnected_) return;
    ended_ = true;
    // Others have its shards by now, and it has not heard that it may end.
    if (leaving_ && absl::IsFailedPrecondition(status)) has_left_ = true;
    if (has_left_) status = absl::OkStatus();
  }
  options_.on_end(std::move(status));
}

void ShardHost::OnLeave(const v1::LeaveAnswer& answer) {
  absl::MutexLock lock(&mutex_);
  if (!leaving_) return;
  if (answer.may_end()) {
    has_left_ = true;
    if (answer.lost().empty()) return;
    Log(LogLevel::kWarning,
        absl::StrCat("server: leaves rank=", options_.rank, " lost=\"", answer.lost(), "\""));
    return;
  }
  if (!answer.instead().empty()) {
    leaving_ = false;
    Log(LogLevel::kWarning,
        absl::StrCat("server: does not leave, ends with the job why=\"", answer.instead(), "\""));
    return;
  }
  const std::string waits = absl::StrJoin(answer.waits_for(), ", ");
  if (waits == leave_told_) return;
  leave_told_ = waits;
  Log(LogLevel::kInfo, absl::StrCat("server: leaving, waits for ", waits));
}

void ShardHost::OnLinkEnded(uint32_t rank, absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    led_[rank].ended = true;
    // The process ends when all of its links have sent their last counters.
    for (const auto& [other, led] : led_) {
      if (status.ok() && !led.ended) return;
    }
  }
  End(std::move(status));
}

AttachLink::Options ShardHost::LinkOptions(uint32_t rank, Led* led) {
  ShardThread* const shard = led->shard.get();
  ShardLoader* const loader = led->loader.get();
  ServerCheckpoints* const checkpoints = led->checkpoints;
  AttachLink::Options link;
  link.coordinator = coordinator_;
  link.rank = rank;
  link.life = life_;
  link.find_coordinator = options_.find_coordinator;
  link.open_channel = options_.open_coordinator;
  // Away means that no data is served, though workers may still be connected.
  link.on_away = [this, shard](bool is_away) {
    service_->SetAway(shard->traits().slices.shard, is_away);
  };
  link.lead_term = led->lead_term;
  link.job_digest = options_.job_digest;
  link.job_text = options_.job_text;
  link.initial_sum = options_.initial_sum;
  link.address = address_;
  link.lease_timeout = options_.lease_timeout;
  link.shard = shard;
  // Not with the mutex: what holds it may wait for the shard's thread, which is here.
  link.fill_counters = [this, shard, replicated = led->replicated](v1::ServerCounters* counters) {
    const DataPlaneTraffic traffic = service_->traffic(shard->traits().slices.shard);
    counters->set_push_payload_bytes(traffic.push_payload_bytes);
    counters->set_pull_payload_bytes(traffic.pull_payload_bytes);
    for (const uint64_t member : service_->memory_members()) counters->add_memory_members(member);
    // The bytes that a replica, which leads no other shard, was copied in, or that went to standbys, which
    // replicas have not.
    counters->set_replication_payload_bytes(replicated->load(std::memory_order_relaxed) +
                                            traffic.copied_payload_bytes);
  };
  link.on_server_key = [this](uint64_t key) { SetServerKey(key); };
  link.on_begun = [this, shard] { service_->Add(shard); };
  if (led->copier != nullptr) {
    link.copy_from = [copier = led->copier.get()](const std::string& donor) {
      copier->CopyFrom(donor);
    };
  }
  // Standbys and replicas have what others have.
  if (!options_.keeps_standbys && led->copier == nullptr) {
    link.begins_from = checkpoints->restore_path();
  }
  link.on_servers = [checkpoints](std::vector<std::string> addresses) {
    checkpoints->SetServers(std::move(addresses));
  };
  // Only a process with a folder can save.
  if (checkpoints->writes()) {
    link.save = [checkpoints, shard](const v1::CheckpointOrder& order,
                                     std::function<void(v1::CheckpointPart)> done) {
      checkpoints->Save(order, shard, std::move(done));
    };
  }
  link.restore = [this, rank, checkpoints, loader](const v1::RestoreOrder& order,
                                                   std::function<void(absl::Status)> done) {
    // Nobody is to push to the old shard any more what the new one would not know of.
    service_->SetGeneration(Generation(order.generation()));
    const auto make = [this, rank] { return MakeShard(rank, /*awaits_load=*/true); };
    loader->Load(
        order.generation(),
        absl::FailedPreconditionError(
            "the job was restored, drop the update and pull; its members join again"),
        [checkpoints, order, make](const std::function<bool()>& goes_on) {
          return checkpoints->Read(order, make, goes_on);
        },
        std::move(done));
  };
  link.on_leave = [this](const v1::LeaveAnswer& answer) { OnLeave(answer); };
  link.on_end = [this, rank](absl::Status status) { OnLinkEnded(rank, std::move(status)); };
  return link;
}

void ShardHost::Lead(uint32_t rank, std::unique_ptr<Shard> shard, uint64_t lead_term) {
  Led& led = led_[rank];
  led.lead_term = lead_term;
  // A shard of another server is saved under that one's rank.
  if (rank != options_.rank) {
    led.own_checkpoints = options_.checkpoints->OfShard(static_cast<int>(rank));
  }
  led.checkpoints =
      led.own_checkpoints != nullptr ? led.own_checkpoints.get() : options_.checkpoints;
  const bool is_there = shard != nullptr;
  // A shard that is not there yet is made on the loader's thread, so that the link can say hello at once.
  led.shard = is_there ? std::make_unique<ShardThread>(std::move(shard))
                       : std::make_unique<ShardThread>(TraitsOf(options_.shard_options(rank)));
  led.loader = std::make_unique<ShardLoader>(led.shard.get());
  if (!is_there) {
    // A restore order may come before it is there.
    led.loader->Load(
        0, absl::OkStatus(),
        [this, rank](const std::function<bool()>& goes_on) { return MakeShard(rank); },
        [](const absl::Status&) {});
  }
  // Nobody is answered before it has the plan, or a checkpoint: one that takes over keeps what its predecessor
  // promised, and one that was started again knows no member, which its members must not take for an answer.
  if (options_.is_replica) {
    led.copier = std::make_unique<ReplicaCopier>(led.shard.get(), options_.job_digest,
                                                 [this] { return service_->server_key(); });
  }
  led.link = std::make_unique<AttachLink>(LinkOptions(rank, &led));
}

void ShardHost::SetServerKey(uint64_t key) {
  service_->SetServerKey(key);
  if (followed_ != nullptr) followed_->SetServerKey(key);
}

void ShardHost::OnOrder(const v1::HostOrder& order) {
  // The key comes with the word, before any role.
  if (order.word().server_key() != 0) SetServerKey(order.word().server_key());
  if (order.has_leave()) {
    OnLeave(order.leave());
    if (has_left()) return End(absl::OkStatus());
  }
  absl::Status status;
  bool is_over = false;
  {
    absl::MutexLock lock(&mutex_);
    if (disconnected_ || ended_) return;
    if (order.end()) {
      // Where this host leads shards, their links send the last counters and end the process.
      if (!led_.empty()) return;
      is_over = true;
      if (!order.failure().empty()) {
        status = absl::AbortedError("the job has failed: " + order.failure());
      }
    }
  }
  if (!is_over) {
    // Orders repeat all roles; only what has changed is carried out.
    const absl::StatusOr<RoleChanges> changes = roles_.Take(order);
    if (changes.ok() && changes->is_same) return;
    status = changes.status();
    if (changes.ok()) Obey(*changes);
    SaySoon();
  }
  if (is_over || !status.ok()) End(std::move(status));
}

void ShardHost::SaySoon() {
  absl::MutexLock lock(&bell_->mutex);
  if (bell_->link != nullptr) bell_->link->SaySoon();
}

void ShardHost::PrepareStandbys() {
  while (true) {
    prepare_.WaitUntil(absl::InfiniteFuture());
    // Standbys are made one after the other, and each is told of at once.
    do {
      SaySoon();
      absl::MutexLock lock(&mutex_);
      if (disconnected_) return;
    } while (followed_->PrepareOne());
  }
}

void ShardHost::Obey(const RoleChanges& changes) {
  for (const auto& [shard, term] : changes.follow) followed_->Follow(shard, term);
  for (const auto& [shard, lead_term] : changes.lead) {
    const auto rank = static_cast<uint32_t>(shard.value());
    // The copy that this host has followed becomes the shard that it leads.
    std::unique_ptr<Shard> mine = followed_->TakeOver(shard);
    Log(LogLevel::kInfo, absl::StrCat("standby: leads shard=", rank, " term=", lead_term,
                                      mine != nullptr ? " as its standby" : ""));
    absl::MutexLock lock(&mutex_);
    if (disconnected_) return;
    Lead(rank, std::move(mine), lead_term);
  }
  // Shards that were followed and are no more are dropped after those that are led were taken over.
  followed_->Keep(changes.followed);
  prepare_.Notify();
  absl::MutexLock lock(&mutex_);
  if (disconnected_) return;
  for (const RoleChanges::Feed& feed : changes.feed) Feed(feed);
}

void ShardHost::Feed(const RoleChanges::Feed& feed) {
  Led& led = led_[static_cast<uint32_t>(feed.shard.value())];
  // The stream to the former standby ends before the next one begins, as both would append to one gate.
  if (led.replicator != nullptr) led.replicator->End();
  led.replicator.reset();
  if (feed.standby.empty()) {
    return led.shard->Post([](ServedShard& served) { served.gate().SetStandby(nullptr); });
  }
  Replicator::Options options;
  options.address = feed.standby;
  options.header.set_job_digest(options_.job_digest);
  options.header.set_shard(static_cast<uint32_t>(feed.shard.value()));
  options.header.set_term(feed.term);
  options.header.set_layout_hash(options_.layout_hash);
  options.header.set_server_key(service_->server_key());
  options.shard = led.shard.get();
  // Twice the shard: one image on its way, and what has happened since.
  options.queue_bytes_max = 2 * led.shard->traits().slices.bytes() + kQueueBytes;
  options.silence_max = options_.lease_timeout;
  options.payload_bytes = led.replicated;
  options.on_change = [bell = bell_] {
    absl::MutexLock lock(&bell->mutex);
    if (bell->link != nullptr) bell->link->SaySoon();
  };
  led.replicator = Replicator::Make(std::move(options));
  led.replicator->Start();
}

v1::HostMessage ShardHost::Message() {
  v1::HostMessage message;
  absl::MutexLock lock(&mutex_);
  message.set_leaves(leaving_);
  for (const auto& [rank, led] : led_) {
    if (led.replicator == nullptr) continue;
    // Progress is looked at with every message, four times a lease.
    led.replicator->CheckProgress(SteadyNow());
    *message.add_leads() = led.replicator->report();
  }
  if (followed_ != nullptr) followed_->Fill(&message);
  return message;
}

void ShardHost::Leave() {
  absl::ReleasableMutexLock lock(&mutex_);
  leaving_ = true;
  // A host says in its next message that it leaves; a single server says so on its link.
  if (options_.keeps_standbys) {
    lock.Release();
    return SaySoon();
  }
  const auto own = led_.find(options_.rank);
  if (own != led_.end() && own->second.link != nullptr) own->second.link->Leave();
}

const AttachLink* ShardHost::AnyLink() const {
  // All links of a process hear the same coordinator.
  for (const auto& [rank, led] : led_) {
    if (led.link != nullptr) return led.link.get();
  }
  return nullptr;
}

std::string ShardHost::coordinator() const {
  absl::MutexLock lock(&mutex_);
  if (const AttachLink* const link = AnyLink()) return link->coordinator();
  return host_link_ != nullptr ? host_link_->coordinator() : coordinator_;
}

uint64_t ShardHost::run() const {
  absl::MutexLock lock(&mutex_);
  if (const AttachLink* const link = AnyLink()) return link->word().run();
  return host_link_ != nullptr ? host_link_->word().run() : 0;
}

v1::JobStatus ShardHost::OwnStatus() const {
  absl::MutexLock lock(&mutex_);
  if (const AttachLink* const link = AnyLink()) return link->OwnStatus();
  v1::JobStatus status;
  status.set_job_digest(options_.job_digest);
  status.set_layout_hash(options_.layout_hash);
  status.set_state("waiting");
  return status;
}

}  // namespace tessera

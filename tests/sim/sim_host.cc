#include "tests/sim/sim_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// As HostLink has them.
constexpr absl::Duration kInterval = absl::Milliseconds(250);
// To make what a standby begins with.
constexpr absl::Duration kMakeMost = absl::Milliseconds(20);
// Values of one message, so that a small shard takes several.
constexpr uint64_t kRoomLeast = 8, kRoomMost = 120;
constexpr int64_t kQueueBytes = 1 << 20;

FollowedShards::Options FollowedOptions(uint64_t layout_hash,
                                        std::function<std::unique_ptr<Shard>(ShardId)> make) {
  FollowedShards::Options options;
  options.layout_hash = layout_hash;
  options.make_shard = std::move(make);
  return options;
}

}  // namespace

// --- the leader's end ---

SimLog::SimLog(SimHost* from, SimServer* shard, SimHost* to, v1::LogHeader header)
    : from_(from),
      shard_(shard),
      to_(to),
      connection_(from->network_->AddConnection()),
      queue_(std::move(header), kQueueBytes, from->coordinator_->state().facts().lease_timeout) {}

void SimLog::End() {
  queue_.Break("it was ended");
  // Some of what is on its way arrives nevertheless.
  if (from_->network_->dice().Chance(0.5)) {
    from_->network_->CutStreams(from_->node(), to_->node(), connection_);
  }
}

void SimLog::Break() {
  if (cut_ || queue_.broken()) return;
  cut_ = true;
  from_->network_->CutStreams(from_->node(), to_->node(), connection_);
  from_->network_->After(
      from_->node(), from_->network_->dice().Between(absl::Milliseconds(1), absl::Milliseconds(50)),
      [self = shared_from_this()] { self->OnEnded("the stream to the standby ended"); });
}

void SimLog::OnAck(uint64_t position) {
  if (queue_.broken()) return;
  queue_.OnAcknowledged(position, from_->Clock());
  shard_->OnAcknowledged(this, position);
}

void SimLog::OnEnded(const std::string& why) {
  if (queue_.Break(why)) from_->SaySoon();
}

void SimLog::Begin(bool copies) {
  is_mute_ = copies && from_->options_.mutation == Mutation::kNeverCopies;
  if (queue_.broken() || is_mute_) return;
  if (!copies) from_->checker_->OnLogBegun(shard_->copy(), queue_.header().term());
  queue_.Begin(copies, from_->Clock());
  Pump();
}

void SimLog::Add(uint64_t position, Version version, ShardEvent event) {
  if (is_mute_) return;
  if (std::holds_alternative<ImageEvent>(event)) {
    from_->checker_->OnImageTaken(shard_->copy(), queue_.header().term());
  }
  queue_.Add(LogQueue::ToEntry(position, version, std::move(event)), from_->Clock());
  if (from_->options_.mutation == Mutation::kAcknowledgesEarly) {
    from_->network_->After(from_->node(), absl::ZeroDuration(),
                           [self = shared_from_this(), position] { self->OnAck(position); });
  }
  Pump();
}

void SimLog::OnInSync() {
  if (queue_.broken()) return;
  queue_.SetInSync();
  from_->SaySoon();
}

void SimLog::CheckProgress() { queue_.CheckProgress(from_->Clock()); }

void SimLog::Pump() {
  if (writing_ || cut_) return;
  FaultyNetwork* const network = from_->network_;
  std::optional<LogQueue::Message> next =
      queue_.Next(static_cast<int64_t>(kRoomLeast + network->dice().Below(kRoomMost)));
  if (!next.has_value()) return;
  writing_ = true;
  const auto message = std::make_shared<LogQueue::Message>(*std::move(next));
  const std::shared_ptr<SimLog> self = shared_from_this();
  const auto arrive = [self, message] { self->to_->Take(self.get(), std::move(*message)); };
  network->Stream(from_->node(), to_->node(), arrive, connection_);
  network->After(from_->node(),
                 network->dice().Between(absl::ZeroDuration(), absl::Microseconds(300)), [self] {
                   self->writing_ = false;
                   self->Pump();
                 });
}

// --- the standby's end ---

void SimHost::Take(SimLog* from, LogQueue::Message message) {
  if (closed_.count(from) > 0) return;
  LogReader& reader = readers_.try_emplace(from, &followed_).first->second;
  const uint64_t last =
      message.head.entries_size() > 0 ? message.head.entries().rbegin()->position() : 0;
  if (message.head.has_header()) {
    const v1::LogHeader& header = message.head.header();
    const auto prepared = prepared_.find(ShardId(header.shard()));
    const bool is_followed =
        prepared != prepared_.end() && follows_[ShardId(header.shard())] == header.term();
    if (is_followed) checker_->OnFollows(prepared->second, header.term());
  }
  absl::StatusOr<uint64_t> taken = reader.Take(message.head, std::move(message.values), Clock());
  if (options_.mutation == Mutation::kTakesOldTerm && absl::IsFailedPrecondition(taken.status())) {
    taken = last;
  }
  const std::shared_ptr<SimLog> log = from->shared_from_this();
  std::function<void()> answer;
  if (taken.ok()) {
    answer = [log, position = *taken] { log->OnAck(position); };
  } else {
    closed_.insert(from);
    if (absl::IsInvalidArgument(taken.status())) {
      checker_->Violate(absl::StrCat("shard ", log->queue().header().shard(),
                                     ": a standby refuses its log: ", taken.status().message()));
    }
    answer = [log, why = std::string(taken.status().message())] { log->OnEnded(why); };
  }
  network_->Stream(node_, from->from_->node(), answer, from->connection_);
}

SimHost::SimHost(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker,
                 Options options)
    : network_(network),
      coordinator_(coordinator),
      checker_(checker),
      options_(std::move(options)),
      node_(network->AddNode()),
      address_(absl::StrCat("host-", options_.rank, "-", options_.life)),
      last_heard_(network->now()),
      roles_(static_cast<uint32_t>(coordinator->state().facts().servers)),
      followed_(FollowedOptions(coordinator->state().facts().layout_hash, [this](ShardId shard) {
        std::unique_ptr<Shard> made = MakeShard(shard, follows_[shard]);
        prepared_[shard] = copies_.at(made.get());
        return made;
      })) {
  (*options_.hosts)[address_] = this;
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Milliseconds(100)),
                  [this] {
                    Attach();
                    Heartbeat();
                  });
}

std::unique_ptr<Shard> SimHost::MakeShard(ShardId shard, uint64_t term) {
  Shard::Options made = options_.shard_options(shard);
  const ShardSlices slices = SlicesOf(made.shape, made.shard, made.sharding);
  const CopyId copy = checker_->AddCopy(shard, slices, term);
  made.policy = checker_->Recorded(copy, Mutated(std::move(made.policy), options_.mutation));
  auto result = std::make_unique<Shard>(std::move(made));
  checker_->SetShard(copy, result.get());
  copies_[result.get()] = copy;
  return result;
}

SimServer* SimHost::Find(ShardId shard) {
  const auto found = led_.find(shard);
  if (found == led_.end() || !found->second->has_begun() || found->second->IsAway()) return nullptr;
  return found->second.get();
}

void SimHost::Attach() {
  connection_ = network_->AddConnection();
  coordinator_life_ = coordinator_->life();
  v1::HostMessage first = Message();
  v1::HostHello& hello = *first.mutable_hello();
  hello.set_rank(options_.rank);
  hello.set_life(options_.life);
  hello.set_address(address_);
  hello.set_run(word_.run());
  hello.set_term(word_.term());
  hello.set_server_key(word_.server_key());
  hello.set_changes(options_.mutation == Mutation::kTellsUnkept ? 0 : word_.changes());
  hello.set_layout_hash(coordinator_->state().facts().layout_hash);
  coordinator_->AttachHost(
      node_, first,
      [this, connection = connection_](const v1::HostOrder& order) {
        if (connection == connection_) OnOrder(order);
      },
      connection_);
}

void SimHost::Heartbeat() {
  const absl::Duration lease = coordinator_->state().facts().lease_timeout;
  if (heard_once_ && network_->now() - last_heard_ > coordinator_->patience()) return End();
  if (coordinator_->is_here() && coordinator_life_ != coordinator_->life()) Attach();
  coordinator_->FromHost(node_, options_.rank, Message(), connection_);
  network_->After(node_, std::min(kInterval, lease / 4), [this] { Heartbeat(); });
}

void SimHost::SaySoon() {
  if (std::exchange(says_soon_, true)) return;
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Milliseconds(1)),
                  [this] {
                    says_soon_ = false;
                    coordinator_->FromHost(node_, options_.rank, Message(), connection_);
                  });
}

v1::HostMessage SimHost::Message() {
  v1::HostMessage message;
  message.set_leaves(leaving_);
  for (const auto& [shard, log] : logs_) {
    log->CheckProgress();
    v1::LeaderReport& report = *message.add_leads();
    report = log->queue().report();
    if (options_.mutation == Mutation::kLeadsUnsynced) report.set_in_sync(true);
  }
  followed_.Fill(&message);
  return message;
}

void SimHost::OnOrder(const v1::HostOrder& order) {
  last_heard_ = network_->now();
  heard_once_ = true;
  if (order.has_word()) word_ = order.word();
  if (!order.leave().instead().empty()) leaving_ = false;
  const bool may_end = leaving_ && (order.leave().may_end() || !order.refuse().empty());
  if (may_end && is_alive()) {
    Die(/*is_silent=*/false);
    return options_.on_left(options_.rank);
  }
  if (!order.refuse().empty()) return End();
  // At the end its shards have last words to say.
  if (order.end()) return;
  const absl::StatusOr<RoleChanges> changes = roles_.Take(order);
  if (!changes.ok()) return End();
  if (changes->is_same) return;
  Obey(*changes);
  SaySoon();
}

void SimHost::Obey(const RoleChanges& changes) {
  for (const auto& [shard, term] : changes.follow) {
    follows_[shard] = term;
    followed_.Follow(shard, term);
  }
  for (const auto& [shard, lead_term] : changes.lead) {
    std::unique_ptr<Shard> mine = followed_.TakeOver(shard);
    SimServer::Options server;
    server.is_new = mine == nullptr;
    if (mine == nullptr) mine = MakeShard(shard, lead_term);
    server.rank = shard;
    server.copy = copies_.at(mine.get());
    server.shard = std::move(mine);
    server.mutation = options_.mutation;
    server.clock_error = options_.clock_error;
    server.node = node_;
    server.address = address_;
    server.lead_term = lead_term;
    server.on_refused = [this] { End(); };
    server.folder = options_.folder;
    server.has_faults = options_.has_faults;
    server.generation = generation_;
    server.make_shard = [this, shard = shard, term = lead_term] {
      std::unique_ptr<Shard> made = MakeShard(shard, term);
      return SimServer::Made{copies_.at(made.get()), std::move(made)};
    };
    server.on_restore = [this](Generation generation) { SetGeneration(generation); };
    led_[shard] = std::make_unique<SimServer>(network_, coordinator_, checker_, std::move(server));
  }
  followed_.Keep(changes.followed);
  const absl::Duration taken = network_->dice().Between(absl::ZeroDuration(), kMakeMost);
  network_->After(node_, taken, [this] {
    while (followed_.PrepareOne()) {
    }
    SaySoon();
  });
  for (const RoleChanges::Feed& feed : changes.feed) Feed(feed);
}

void SimHost::SetGeneration(Generation generation) {
  generation_ = std::max(generation_, generation);
  for (const auto& [shard, server] : led_) server->SetGeneration(generation_);
}

void SimHost::Feed(const RoleChanges::Feed& feed) {
  SimServer* const shard = led_.at(feed.shard).get();
  if (const auto log = logs_.find(feed.shard); log != logs_.end()) {
    log->second->End();
    past_logs_.push_back(std::move(log->second));
    logs_.erase(log);
  }
  if (feed.standby.empty()) return shard->SetStandby(nullptr);
  v1::LogHeader header;
  header.set_shard(static_cast<uint32_t>(feed.shard.value()));
  header.set_term(feed.term);
  header.set_layout_hash(coordinator_->state().facts().layout_hash);
  const auto log =
      std::make_shared<SimLog>(this, shard, options_.hosts->at(feed.standby), std::move(header));
  logs_[feed.shard] = log;
  // A connection to one that is gone is refused.
  if (!log->to()->is_alive()) log->Break();
  shard->SetStandby(log);
}

void SimHost::Leave() {
  leaving_ = true;
  SaySoon();
}

void SimHost::BreakLink() {
  const uint64_t which = network_->dice().Below(led_.size() + 1);
  if (which < led_.size()) return std::next(led_.begin(), which)->second->BreakLink();
  network_->CutStreams(node_, coordinator_->node(), connection_);
  coordinator_->DetachHost(options_.rank, connection_);
  // Some come back when another leads.
  network_->After(node_, network_->dice().Between(absl::Milliseconds(30), absl::Seconds(1)),
                  [this] { Attach(); });
}

void SimHost::BreakLog() {
  if (!logs_.empty()) {
    std::next(logs_.begin(), network_->dice().Below(logs_.size()))->second->Break();
  }
}

void SimHost::OnPeerDied(const SimHost* peer) {
  for (const auto& [shard, log] : logs_) {
    if (log->to() == peer) log->Break();
  }
}

void SimHost::End() {
  const bool was_alive = is_alive();
  Die(/*is_silent=*/false);
  // Where others have its shards it may have heard so from them first.
  if (was_alive) (leaving_ ? options_.on_left : options_.on_end)(options_.rank);
}

void SimHost::Die(bool is_silent) {
  if (!is_alive()) return;
  network_->Kill(node_);
  if (is_silent) return;
  coordinator_->DetachHost(options_.rank, connection_);
  for (const auto& [shard, server] : led_) coordinator_->Detach(shard, server->connection());
  for (const auto& [address, host] : *options_.hosts) {
    if (host->is_alive()) host->OnPeerDied(this);
  }
}

std::string SimHost::Describe() const {
  std::string text = absl::StrCat(address_, is_alive() ? "" : " is gone");
  for (const auto& [shard, log] : logs_) {
    absl::StrAppend(&text, "; log of shard ", shard.value(), " term ", log->queue().header().term(),
                    log->queue().report().in_sync() ? " in sync" : "", " to ", log->to()->address(),
                    " ", log->queue().report().broken());
  }
  for (const auto& [shard, server] : led_) absl::StrAppend(&text, "\n    ", server->Describe());
  return text;
}

}  // namespace tessera

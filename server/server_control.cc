#include "server/server_control.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/folder_lock.h"
#include "server/control/lost_parameters.h"
#include "server/control/state_times.h"

namespace tessera {
namespace {

// The bounds of the election's lease: it cannot be shorter than etcd grants by default, and nobody waits for
// longer.
constexpr absl::Duration kElectionLeaseMin = absl::Seconds(2);
constexpr absl::Duration kElectionLeaseMax = absl::Seconds(30);

// The folder of the coordinator's state: the one that the job names, or one beside the checkpoints.
std::string StateFolder(const v1::Job& job) {
  const std::string& folder = job.cluster().coordinator().directory();
  if (!folder.empty() || job.checkpoint().directory().empty()) return folder;
  return absl::StrCat(job.checkpoint().directory(), "/coordinator");
}

// Draws the number of a run, or of its servers. It is never 0, which stands for none.
uint64_t DrawNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device() | 1;
}

// Why nobody can go on from it; empty: somebody can.
std::string WhyNot(const Coordinator& coordinator, bool is_elected) {
  if (coordinator.ended()) return "it has ended";
  // In server 0 this process was started in the place of the one that had server 0's parameters.
  const Membership& membership = coordinator.membership();
  const bool is_lost = !is_elected && membership.started() && !membership.CanDoWithout(ShardId(0));
  if (!is_lost || membership.losses().CanGoBack()) return "";
  const JobFacts& facts = coordinator.facts();
  return absl::StrCat("server 0's parameters are lost; ",
                      LostParametersAdvice({facts.checkpoints, facts.standbys, facts.servers}));
}

}  // namespace

ServerControl::ServerControl(const v1::Job& job, const JobFacts& facts, bool is_kept)
    : facts_(facts),
      folder_(is_kept ? StateFolder(job) : ""),
      is_asked_for_(!job.cluster().coordinator().directory().empty()),
      folder_key_(job.cluster().coordinator().directory().empty()
                      ? "checkpoint.directory"
                      : "cluster.coordinator.directory"),
      members_(job.cluster().coordinator().etcd().begin(),
               job.cluster().coordinator().etcd().end()),
      servers_(job.cluster().servers().addresses().begin(),
               job.cluster().servers().addresses().end()),
      away_timeout_(absl::Nanoseconds(job.cluster().coordinator().away_timeout())),
      live_(facts.lease_timeout) {}

// Order matters: the election calls back until it has stopped, and its callbacks use what is destroyed after.
ServerControl::~ServerControl() {
  if (election_ == nullptr) return;
  election_->Stop();
  live_.Vacate("the server ends");
  election_.reset();
}

absl::Status ServerControl::Open() {
  word_.set_away_timeout_ns(absl::ToInt64Nanoseconds(away_timeout_));
  if (!members_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(etcd_, EtcdClient::Create({members_}));
    finder_ = std::make_unique<CoordinatorFinder>(etcd_.get(), facts_.digest, servers_);
    return absl::OkStatus();
  }
  if (!folder_.empty()) TESSERA_RETURN_IF_ERROR(OpenFolder());
  // Without a file workers cannot wait for a coordinator that comes back: it would know nothing.
  if (file_ == nullptr) word_.set_away_timeout_ns(0);
  return absl::OkStatus();
}

// Where nobody has asked for a state a file system without locks keeps none, as two coordinators could go on from it.
absl::Status ServerControl::OpenFolder() {
  const std::string parent = folder_.substr(0, folder_.rfind('/'));
  if (!parent.empty()) TESSERA_RETURN_IF_ERROR(MakeFolder(parent));
  absl::StatusOr<std::unique_ptr<StateFile>> file = StateFile::Open(folder_);
  const bool has_no_locks = absl::IsUnimplemented(file.status());
  if (has_no_locks && !is_asked_for_) {
    Log(LogLevel::kWarning, absl::StrCat("control: the coordinator's state is kept nowhere why=\"",
                                         file.status().message(), "\"; ", kNoLocksAdvice));
    return absl::OkStatus();
  }
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat(folder_key_, ": ", file.status().message(),
                                     has_no_locks ? "; " : "", has_no_locks ? kNoLocksAdvice : ""));
  }
  file_ = *std::move(file);
  TESSERA_ASSIGN_OR_RETURN(const std::optional<v1::CoordinatorState> state, file_->Read());
  if (state) Take(*state);
  return absl::OkStatus();
}

void ServerControl::Take(v1::CoordinatorState state) {
  // Whoever heard the last state being kept waits for so long at most.
  ShiftTimes(StateMomentNow(), kStateAgeMax + away_timeout_, &state);
  absl::StatusOr<std::unique_ptr<Coordinator>> found = Coordinator::Load(facts_, state);
  // What was kept may be of a job that has ended, or that nobody could go on with.
  const std::string why =
      found.ok() ? WhyNot(**found, is_elected()) : std::string(found.status().message());
  if (!why.empty()) {
    Log(LogLevel::kInfo,
        absl::StrCat("control: begins anew, not from what was kept why=\"", why, "\""));
    return;
  }
  found_ = *std::move(found);
  word_.set_run(state.run());
  word_.set_server_key(state.server_key() != 0 ? state.server_key() : DrawNumber());
  // The term grows with each coordinator, so that answers of earlier ones are told apart.
  word_.set_term(state.term() + 1);
  word_.set_changes(state.changes());
}

absl::Status ServerControl::Install(ServerCheckpoints* checkpoints, StateStore* store) {
  // Checkpoints are tied to the coordinator before it can begin one.
  TESSERA_RETURN_IF_ERROR(checkpoints->Keep(&live_, goes_on(), is_elected()));
  const absl::Time now = SteadyNow();
  std::unique_ptr<Coordinator> coordinator = std::move(found_);
  if (coordinator != nullptr) {
    Log(LogLevel::kWarning,
        absl::StrCat("control: goes on with the job from what was kept term=", word_.term(),
                     " generation=", coordinator->membership().generation().value()));
    // Members and servers that were there have to come again.
    coordinator->Reconnect(now);
  } else {
    word_.set_run(DrawNumber());
    word_.set_server_key(DrawNumber());
    word_.set_term(1);
    word_.set_changes(0);
    JobFacts facts = facts_;
    facts.restored = checkpoints->restored();
    TESSERA_ASSIGN_OR_RETURN(coordinator, Coordinator::Create(std::move(facts), now));
  }
  return live_.Install(std::move(coordinator), word_, store);
}

absl::Status ServerControl::Begin(ServerCheckpoints* checkpoints) {
  return Install(checkpoints, file_.get());
}

void ServerControl::StandForElection(Stand stand) {
  stand_ = std::move(stand);
  ServerElection::Options options;
  options.etcd = etcd_.get();
  options.prefix = EtcdPrefix(facts_.digest);
  options.address = stand_.address;
  // Shorter than etcd's least lease is not granted, longer would leave the job without a coordinator for long.
  options.ttl = std::clamp(facts_.lease_timeout, kElectionLeaseMin, kElectionLeaseMax);
  options.on_elected = [this](int64_t revision) { return OnElected(revision); };
  options.on_deposed = [this](absl::string_view why) { OnDeposed(why); };
  election_ = std::make_unique<ServerElection>(std::move(options));
  // What this server could not write while it was elected is for another server to decide.
  live_.SetOnVacated([this](absl::Status why) { election_->Resign(); });
  election_->Start();
}

absl::Status ServerControl::OnElected(int64_t revision) {
  store_ = std::make_unique<EtcdStore>(etcd_.get(), EtcdPrefix(facts_.digest), revision,
                                       [this] { return election_->held_until(); });
  TESSERA_ASSIGN_OR_RETURN(const std::optional<v1::CoordinatorState> state, store_->Read());
  found_.reset();
  if (state) Take(*state);
  // The elected server's own job has ended: another one must not begin it anew.
  if (found_ == nullptr && state && stand_.run() == state->run()) {
    return absl::FailedPreconditionError("the job has ended, and this server has yet to end");
  }
  return Install(stand_.checkpoints, store_.get());
}

void ServerControl::OnDeposed(absl::string_view why) {
  // First of all nothing more is answered, as another coordinator may be at work.
  live_.Vacate(why);
  stand_.checkpoints->Depose();
  store_.reset();
}

}  // namespace tessera

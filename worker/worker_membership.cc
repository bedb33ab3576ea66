#include "worker/worker_membership.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/steady_clock.h"
#include "common/base/utf8.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/part_file.h"
#include "common/config/checkpoint_keys.h"
#include "common/config/job_difference.h"
#include "common/layout/shard_map.h"
#include "common/metrics/process_memory.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "common/store/own_disks.h"
#include "worker/exchange/device_sides.h"
#include "worker/moved_shards.h"
#include "worker/own_model.h"
#include "worker/rejoin.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/make_replica.h"
#include "worker/train/worker_report.h"

namespace tessera {
namespace {

// How long a server is tried that cannot be reached, in leases. The coordinator takes a server for lost one lease
// after it was heard last, and is the one to say so: by itself a worker gives up later.
constexpr double kServerRetryLeases = 1.5;
// Where another takes its place, which may need its own lease for that: a replica's peer, or a standby.
constexpr double kReplacedRetryLeases = 3;
constexpr absl::Duration kPausePoll = absl::Milliseconds(50);
// For a train loop that has been told to end, at least; a minibatch may be under way.
constexpr absl::Duration kLoopPatience = absl::Seconds(2);

Sharding ShardingOf(const PreparedWorker& worker) {
  return ShardingOf(worker.recipe, static_cast<int>(worker.job.cluster().servers().count()));
}

absl::Duration LeaseOf(const v1::JoinReply& admission) {
  return absl::Nanoseconds(admission.lease_timeout_ns());
}

}  // namespace

absl::Status WorkerMembership::Join() {
  const v1::Job& job = worker_.job;
  CoordinatorClient::Options control;
  if (finder_ != nullptr) {
    control.find = [this] { return finder_->Find(); };
  } else {
    control.address =
        options_.coordinator.empty() ? job.cluster().servers().addresses(0) : options_.coordinator;
  }
  control.job_digest = worker_.digest;
  control.job_text = JobTextToSend(job);
  control.layout_hash = LayoutHash(worker_.shape, ShardingOf(worker_));
  if (options_.rank >= 0) control.rank = Rank(options_.rank);
  if (admission_.admitted()) {  // it was admitted before
    control.rank = Rank(admission_.rank());
    control.continues = MemberId(admission_.member());
  }
  OwnModel* const own_model = options_.own_model;
  control.description = ProcessDescription();
  if (layers_ != nullptr) control.own_address = layers_->address();
  control.rows = worker_.data->train.rows();
  control.train_sum = worker_.train_sum;
  control.test_sum = worker_.test_sum;
  control.values = worker_.data->train.is_bytes() ? v1::VALUES_BYTES : v1::VALUES_NUMBERS;
  coordinator_ = std::make_unique<CoordinatorClient>(std::move(control));
  {
    absl::MutexLock lock(&mutex_);
    joining_ = coordinator_.get();
    if (asked_to_leave_) joining_->Cancel();
  }
  absl::StatusOr<v1::JoinReply> joined =
      coordinator_->Join([own_model](absl::string_view waiting_for) {
        Log(LogLevel::kInfo, absl::StrCat("worker: waiting for ", waiting_for));
        if (own_model != nullptr) own_model->WaitsFor(waiting_for);
      });
  bool leaves = false;
  {
    absl::MutexLock lock(&mutex_);
    joining_ = nullptr;
    leaves = asked_to_leave_;
  }
  TESSERA_RETURN_IF_ERROR(joined.status());
  // The worker's client was cancelled after it had become a member, and makes no other call than this.
  if (leaves) {
    coordinator_->Withdraw("");
    return absl::CancelledError("cancelled");
  }
  admission_ = *std::move(joined);
  Log(LogLevel::kInfo,
      absl::StrCat("worker: joined rank=", admission_.rank(), " member=", admission_.member(),
                   " first_exchange=", admission_.first_exchange()));
  // One tells what holds for all: they have the same files, but for local rows.
  if (admission_.rank() == 0 || job.data().partition() == "local") worker_.LogNotes();
  // The loss may be told while this client is being destroyed.
  CoordinatorClient* const client = coordinator_.get();
  client->StartRenewing(
      [this, client](absl::Status why) {
        const bool rejoins = absl::IsAborted(why);
        OnLost(std::move(why));
        client->Cancel();
        if (!rejoins) EndStalled();
      },
      [this](const v1::ServerList& list) { OnServers(list); },
      [this](bool is_away) { OnAway(is_away); },
      [this](const v1::WorkerList& list) {
        if (layers_ != nullptr) layers_->SetWorkers(list);
      });
  coordination_ = std::make_unique<RemoteCoordination>(client);
  return absl::OkStatus();
}

// Whether payloads may go by memory to servers of this machine. Where the system does not let them the log says why.
bool WorkerMembership::SharesMemory() const {
  if (worker_.job.cluster().transport() != "auto") return false;
  const absl::Status status = SharedArena::Enable();
  if (!status.ok()) {
    Log(LogLevel::kInfo,
        absl::StrCat("worker: all payloads go by TCP why=\"", status.message(), "\""));
  }
  return status.ok();
}

absl::Status WorkerMembership::Connect() {
  const Recipe& recipe = worker_.recipe;
  const Rank rank(admission_.rank());
  const Sharding sharding = ShardingOf(worker_);
  ParameterClientGrpc::Options data;
  data.placement = recipe.placement;
  data.home = admission_.rank();
  if (recipe.placement == Placement::kSharded) {
    data.servers.assign(admission_.servers().begin(), admission_.servers().end());
  }
  for (int shard = 0; shard < sharding.count; ++shard) {
    data.slices.push_back(SlicesOf(worker_.shape, ShardId(shard), sharding));
  }
  data.layout_hash = LayoutHash(worker_.shape, sharding);
  data.member = MemberId(admission_.member());
  data.generation = Generation(admission_.generation());
  data.job_digest = worker_.digest;
  data.kind = static_cast<v1::PayloadKind>(recipe.payload);
  Backend* const backend = worker_.backend.get();
  data.coding = {recipe.codecs, worker_.shape,    worker_.job.seed(),
                 rank,          recipe.placement, DeviceSidesOf(recipe, backend->memory()),
                 backend};
  if (recipe.split) data.coding.layers = recipe.split->range(rank);
  data.shares_memory = SharesMemory();
  data.has_standbys = worker_.has_standbys();
  const bool is_replaced = recipe.placement == Placement::kReplicated || data.has_standbys;
  data.retry_time = LeaseOf(admission_) * (is_replaced ? kReplacedRetryLeases : kServerRetryLeases);
  if (data.has_standbys) data.on_trouble = [client = coordinator_.get()] { client->RenewSoon(); };
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ParameterClientGrpc> servers,
                           ParameterClientGrpc::Create(std::move(data)));
  servers->SetServers(admission_.server_list());
  absl::MutexLock lock(&mutex_);
  if (server_list_.servers().empty()) server_list_ = admission_.server_list();
  servers->SetServers(server_list_);
  servers->SetAway(is_away_);
  servers_ = std::move(servers);
  return absl::OkStatus();
}

absl::Status WorkerMembership::MakeLearner() {
  if (options_.own_model != nullptr) {
    auto learner = options_.own_model->MakeLearner(worker_, admission_);
    if (learner.ok()) learner_ = *std::move(learner);
    return learner.status();
  }
  LayerEnds ends;
  if (layers_ != nullptr) {
    LayerPartners::Life life;
    life.member = MemberId(admission_.member());
    life.rank = Rank(admission_.rank());
    life.workers = admission_.worker_list();
    // One that dies is out of the list after its lease, which may begin a little later.
    life.retry_time = 3 * LeaseOf(admission_);
    life.on_trouble = [client = coordinator_.get()] { client->RenewSoon(); };
    layers_->Begin(std::move(life));
    ends = {layers_->sender(), layers_->receiver()};
  }
  TESSERA_ASSIGN_OR_RETURN(
      learner_,
      MakeReplica(worker_.job, worker_.recipe, Rank(admission_.rank()),
                  Exchange(admission_.first_exchange()), worker_.backend.get(),
                  InputRowsOf(worker_.job.model(), *worker_.data), worker_.subnet_memory, ends));
  return absl::OkStatus();
}

absl::Status WorkerMembership::MakeSaver() {
  const v1::Checkpoint& checkpoint = worker_.job.checkpoint();
  if (admission_.has_resume() && admission_.resume().from_restore() &&
      checkpoint.restore().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint.restore: not set here, and the job goes on from step ",
                     admission_.resume().step(), "; name the checkpoint that server 0 was given"));
  }
  WorkerSaver::Options saver;
  saver.rank = Rank(admission_.rank());
  saver.workers = worker_.job.cluster().workers();
  saver.push_weight = worker_.recipe.push_weight;
  saver.split = worker_.recipe.split;
  saver.payload = worker_.recipe.payload;
  saver.pushes = worker_.recipe.pushes;
  saver.facts = worker_.data->facts;
  saver.tell = [this](v1::SavedRequest request) { return coordinator_->Saved(std::move(request)); };
  if (admission_.has_resume()) {
    const v1::Resume& resume = admission_.resume();
    saver.restored = CheckpointPath(
        resume.from_restore() ? checkpoint.restore() : checkpoint.directory(), resume.step());
    saver.restored_sum = resume.manifest_sum();
    saver.goes_back = !resume.from_restore();
  }
  if (!checkpoint.directory().empty()) saver.parts = PartsIn(checkpoint.directory());
  if (HasOwnDisks(worker_.job)) TESSERA_RETURN_IF_ERROR(UseOwnDisks(&saver));
  if (admission_.has_resume() && worker_.job.has_data()) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> restored =
        saver.bring == nullptr ? Checkpoint::Open(saver.restored)
                               : Checkpoint::OpenParts(saver.restored, saver.bring);
    if (!restored.ok()) return restored.status();
    TESSERA_RETURN_IF_ERROR(worker_.CheckFacts(**restored, admission_));
  }
  saver_ = std::make_unique<WorkerSaver>(std::move(saver));
  return absl::OkStatus();
}

// A worker keeps nothing on its own disk but what it fetches to begin with, until it has read that.
absl::Status WorkerMembership::UseOwnDisks(WorkerSaver::Options* saver) {
  const v1::Checkpoint& checkpoint = worker_.job.checkpoint();
  const auto disks = std::make_shared<const OtherDisks>(
      std::vector<std::string>(admission_.servers().begin(), admission_.servers().end()),
      /*own=*/-1, worker_.digest, checkpoint.copies());
  if (!checkpoint.directory().empty()) {
    saver->parts = [this, disks](uint64_t folder_step, const std::string& name) {
      if (!worker_.has_standbys()) return disks->OpenPart(folder_step, name);
      const std::vector<std::string> leaders = LeadersByRank();
      return OtherDisks(leaders, /*own=*/-1, worker_.digest, worker_.job.checkpoint().copies(),
                        AwayIn(leaders))
          .OpenPart(folder_step, name);
    };
  }
  if (!admission_.has_resume()) return absl::OkStatus();
  std::string folder = checkpoint.directory();
  if (folder.empty()) {
    std::error_code error;
    folder = std::filesystem::temp_directory_path(error).string();
    if (error) folder = "/tmp";
  }
  TESSERA_RETURN_IF_ERROR(MakeFolder(folder));
  // Workers of other jobs may have the same folder, and this rank in theirs.
  absl::StrAppend(&folder, "/fetched-worker-", admission_.rank(), "-", worker_.digest.substr(0, 8));
  const v1::Resume& resume = admission_.resume();
  TESSERA_RETURN_IF_ERROR(BeginFetched(*disks, resume.step(), resume.manifest_sum(), folder));
  saver->restored = folder;
  saver->bring = BringFrom(disks, resume.step(), resume.manifest_sum(), folder);
  return absl::OkStatus();
}

// A server that leads several shards is one disk.
std::vector<std::string> WorkerMembership::LeadersByRank() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> addresses(static_cast<size_t>(server_list_.servers_size()));
  for (const v1::ServerEntry& entry : server_list_.servers()) {
    const bool is_new =
        std::find(addresses.begin(), addresses.end(), entry.address()) == addresses.end();
    if (is_new && entry.rank() < addresses.size()) addresses[entry.rank()] = entry.address();
  }
  return addresses;
}

absl::Status WorkerMembership::Run() {
  if (options_.own_model != nullptr) options_.own_model->BeginMembership();
  TESSERA_RETURN_IF_ERROR(Join());
  TESSERA_RETURN_IF_ERROR(Connect());
  if (const absl::Status made = MakeLearner(); !made.ok()) {
    absl::MutexLock lock(&mutex_);
    return lost_.ok() ? made : lost_;
  }
  if (worker_.has_checkpoints() || admission_.resume().from_restore()) {
    TESSERA_RETURN_IF_ERROR(MakeSaver());
  }
  TrainLoop::Options options;
  options.job = worker_.job;
  options.recipe = worker_.recipe;
  options.rank = Rank(admission_.rank());
  options.first_exchange = Exchange(admission_.first_exchange());
  options.first_step = admission_.first_step();
  options.first_epoch = admission_.epoch();
  options.store = saver_.get();
  options.resumes = saver_ != nullptr && admission_.has_resume();
  options.evaluation_due = admission_.evaluation_due() || admission_.resume().evaluation_due();
  options.checkpoint_number = admission_.checkpoint_number();
  options.before = before_;
  TrainLoop* loop = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    loop_ = std::make_unique<TrainLoop>(std::move(options), worker_.data.get(), learner_.get(),
                                        servers_.get(), coordination_.get());
    loop = loop_.get();
    if (asked_to_leave_) loop->Stop();
  }
  absl::Status status = loop->Run();
  loop_over_.Notify();
  absl::MutexLock lock(&mutex_);
  // What ended the calls says more than that they were cancelled.
  if (!lost_.ok()) return lost_;
  // A caller's minibatch is given up where the worker is asked to leave: the loop need not come to an exchange.
  const bool has_left = asked_to_leave_ && options_.own_model != nullptr;
  return has_left && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

bool WorkerMembership::MayRejoin(const absl::Status& status) {
  using Answer = RejoinQuestion::Answer;
  RejoinQuestion question(status, LeaseOf(admission_), SteadyNow());
  while (question.may_be_server() && worker_.has_checkpoints()) {
    {
      absl::MutexLock lock(&mutex_);
      if (absl::IsAborted(lost_)) return true;
      if (!lost_.ok() || asked_to_leave_) return false;
    }
    const absl::StatusOr<v1::RenewReply> word = coordinator_->AskMembership();
    const bool may_return = coordinator_->MayReturn(word.status());
    const Answer answer = question.OnWord(word, may_return, SteadyNow());
    if (answer != Answer::kAskAgain) return answer == Answer::kJoinAgain;
    absl::SleepFor(kPausePoll);
  }
  absl::MutexLock lock(&mutex_);
  return absl::IsAborted(lost_);
}

LifeBefore WorkerMembership::End() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  LifeBefore work{loop_->phases(), loop_->traffic()};
  Log(LogLevel::kWarning, absl::StrCat("worker: joining again rank=", admission_.rank()));
  coordinator_->Cancel();
  // While its disk hangs it says so, and a second signal ends it; the others wait no longer than for one that is lost.
  saver_.reset();
  {
    absl::MutexLock lock(&mutex_);
    loop_.reset();
    servers_.reset();
  }
  coordination_.reset();
  coordinator_.reset();  // Waits for the thread that renews.
  learner_.reset();
  if (layers_ != nullptr) {
    layers_->End();
    layers_->SetAway(false);
  }
  return work;
}

absl::Status WorkerMembership::Leave(absl::Status status, bool is_wanted) {
  if (!is_training()) {
    // Those who hear of the end need not wait for the worker's lease.
    const bool has_left = is_wanted && absl::IsCancelled(status);
    // One that was told to leave while it was joining has withdrawn; a model of the caller's may be told later.
    const bool has_withdrawn = has_left && options_.own_model == nullptr;
    if (admission_.admitted() && !has_withdrawn) {
      coordinator_->Withdraw(has_left ? "" : ToUtf8(status.message()));
    }
    return status;
  }
  if (absl::IsFailedPrecondition(status)) {
    const absl::Status word = coordinator_->AskMembership().status();
    if (absl::IsFailedPrecondition(word)) status = word;
  }
  bool residual_lost = false;
  {
    absl::MutexLock lock(&mutex_);
    residual_lost = loop_->left_residual();
    left_early_ = asked_to_leave_ && loop_->left_early();
  }
  // Without the lock: it waits for the renewing thread, which may be about to say that all is lost.
  const absl::Status left =
      coordinator_->Leave(Report(), ToUtf8(status.message()), residual_lost, left_early_);
  return status.ok() ? left : status;
}

void WorkerMembership::AskToLeave() {
  absl::MutexLock lock(&mutex_);
  asked_to_leave_ = true;
  if (joining_ != nullptr) joining_->Cancel();
  if (loop_ != nullptr) loop_->Stop();
  if (options_.own_model != nullptr) {
    options_.own_model->Cancel(absl::CancelledError("it has left"));
  }
}

void WorkerMembership::Abandon(absl::Status why) { OnLost(std::move(why)); }

v1::WorkerReport WorkerMembership::Report() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  v1::WorkerReport report = ReportOf(*loop_);
  report.set_rank(admission_.rank());
  report.set_peak_rss_bytes(ReadProcessMemory().peak_rss_bytes);
  report.set_backend(options_.own_model != nullptr ? options_.own_model->description()
                                                   : worker_.backend->description());
  report.set_cpu(CpuName());
  report.set_version(kVersion);
  report.set_gpu(worker_.backend->gpu());
  return report;
}

void WorkerMembership::OnLost(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  Log(LogLevel::kWarning, absl::StrCat("worker: cannot go on: ", why.message()));
  lost_ = std::move(why);
  if (loop_ != nullptr) loop_->Abandon();
  if (servers_ != nullptr) servers_->Cancel();
  if (layers_ != nullptr) layers_->Cancel();
  if (options_.own_model != nullptr) options_.own_model->Cancel(lost_);
}

// Called once this worker is no member any more, on the thread that renewed its lease.
void WorkerMembership::EndStalled() {
  if (!is_training()) return;
  const absl::Duration patience = std::max(kLoopPatience, LeaseOf(admission_));
  if (loop_over_.WaitFor(patience)) return;
  absl::Status why;
  {
    absl::MutexLock lock(&mutex_);
    why = lost_;
  }
  const std::string message = absl::StrCat(why.message(), "; its train loop has not come back for ",
                                           absl::FormatDuration(patience));
  // The process of a caller's model is the caller's, who hears of it.
  if (options_.own_model != nullptr) {
    options_.own_model->OnStalled(absl::Status(why.code(), message));
    return;
  }
  Log(LogLevel::kError, absl::StrCat("worker: ended error=\"", message, "\""));
  _exit(1);
}

void WorkerMembership::OnServers(const v1::ServerList& list) {
  absl::MutexLock lock(&mutex_);
  if (worker_.has_standbys()) LogMovedShards(server_list_, list);
  server_list_ = list;
  if (servers_ != nullptr) servers_->SetServers(list);
}

void WorkerMembership::OnAway(bool is_away) {
  absl::MutexLock lock(&mutex_);
  is_away_ = is_away;
  if (servers_ != nullptr) servers_->SetAway(is_away);
  if (layers_ != nullptr) layers_->SetAway(is_away);
}

}  // namespace tessera

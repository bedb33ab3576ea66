#include "deploy/cli/doctor_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/base/process.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/initial_file.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "common/etcd/coordinator_key.h"
#include "common/etcd/etcd_client.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/layout/tensor_layout.h"
#include "common/method/recipe.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/host_addresses.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"
#include "common/rpc/windows.h"
#include "deploy/cli/check_notes.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/wrap.h"
#include "deploy/doctor/checkpoint_check.h"
#include "deploy/doctor/data_check.h"
#include "deploy/doctor/device_check.h"
#include "deploy/doctor/disk_check.h"
#include "deploy/doctor/findings.h"
#include "common/base/machine_memory.h"
#include "deploy/doctor/kernel_network.h"
#include "deploy/doctor/limits_check.h"
#include "deploy/doctor/memory_check.h"
#include "deploy/doctor/missing_server.h"
#include "deploy/doctor/own_name_check.h"
#include "deploy/doctor/reachability.h"
#include "deploy/doctor/security_check.h"
#include "deploy/doctor/server_check.h"
#include "kernels/devices.h"
#include "nlohmann/json.hpp"
#include "proto/status.grpc.pb.h"
#include "server/control/job_facts.h"
#include "server/shard/stored_values.h"

namespace tessera {
namespace {

constexpr absl::Duration kConnectMax = absl::Seconds(3);
constexpr std::chrono::seconds kServerAnswerMax{10};
constexpr int kRoundTrips = 3;

// Prints a finding in the terminal's width, with what to do about it below. Where there are colours, what is good is
// green, a note yellow and a problem red.
void Print(const Finding& finding) {
  static constexpr const char* kMarks[] = {"ok       ", "note     ", "PROBLEM  "};
  static constexpr const char* kColored[] = {"\x1b[32mok\x1b[0m       ", "\x1b[33mnote\x1b[0m     ",
                                             "\x1b[1;31mPROBLEM\x1b[0m  "};
  constexpr int kIndent = 9;
  const int width = std::max(30, TerminalWidth() - kIndent);
  const auto print = [&](const char* lead, const std::string& text) {
    for (const std::string& line : Wrap(text, width)) {
      std::printf("%s%s\n", lead, line.c_str());
      lead = "         ";
    }
  };
  print((UsesColor() ? kColored : kMarks)[static_cast<int>(finding.kind)], finding.what);
  if (!finding.advice.empty()) print("      -> ", finding.advice);
  std::fflush(stdout);  // The next one may take long.
}

// What came of calling a server.
struct ServerCall {
  Reach reach = Reach::kRefused;
  OwnPort port;
  // What is wrong with the name in the address, seen from here.
  Findings name;
  // How the call for the status ended, where somebody listens.
  absl::Status answer;
  v1::JobStatus status;
  absl::Time asked;
  absl::Time answered;
  // How long a call takes that asks for next to nothing, where the server answers.
  absl::Duration round_trip = absl::InfiniteDuration();
};

// Calls a server with the security that UseSecurity has set.
ServerCall CallServer(int rank, const std::string& address) {
  ServerCall call;
  call.reach = TryConnect(address, kConnectMax);
  call.port = TryOwnPort(address);
  call.name = CheckOwnName(rank, address, ResolveHost,
                           [](int port) { return ListensOutside(port, kConnectMax); });
  if (call.reach != Reach::kOpen) return call;
  const auto stub = v1::Status::NewStub(OpenControlChannel(address, Role::kViewer));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kServerAnswerMax);
  v1::StatusRequest request;
  request.set_recent_history(true);  // The clocks are compared by how long the answer takes.
  call.asked = absl::Now();
  call.answer = FromGrpc(stub->Get(&context, request, &call.status));
  call.answered = absl::Now();
  // The first call had to connect. Of several that follow the shortest is the way's, and others waited for something.
  for (int i = 0; i < kRoundTrips && call.answer.ok(); ++i) {
    grpc::ClientContext again;
    again.set_deadline(std::chrono::system_clock::now() + kServerAnswerMax);
    v1::EventsRequest none;
    none.set_after(std::numeric_limits<uint64_t>::max());
    v1::EventsReply reply;
    const absl::Time begun = SteadyNow();
    // A server that has no events says so, which takes as long.
    const grpc::Status status = stub->Events(&again, none, &reply);
    if (status.ok() || status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
      call.round_trip = std::min(call.round_trip, SteadyNow() - begun);
    }
  }
  return call;
}

// The findings as one JSON object.
std::string FindingsJson(const Findings& findings, int problems) {
  static constexpr const char* kKinds[] = {"ok", "note", "problem"};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"kind", kKinds[static_cast<int>(finding.kind)]},
                    {"what", finding.what},
                    {"advice", finding.advice}});
  }
  const nlohmann::ordered_json json = {{"problems", problems}, {"findings", list}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Prints what it finds as it goes, or keeps it for JSON.
class Examination {
 public:
  Examination(const DoctorOptions& options, v1::Job job, Recipe recipe, ModelShape shape)
      : options_(options),
        job_(std::move(job)),
        recipe_(std::move(recipe)),
        shape_(std::move(shape)) {}

  // Examines everything; returns the number of problems.
  int Run() {
    const int servers = static_cast<int>(job_.cluster().servers().count());
    Good(absl::StrCat("job: ", recipe_.name, ", ", shape_.size, " parameters (",
                      Bytes(static_cast<double>(shape_.size) * sizeof(float)), "), ",
                      Counted(servers, "server"), ", ", Counted(job_.cluster().workers(), "worker"),
                      ", digest ", JobDigest(job_).substr(0, 12)));
    // The limits are tried before there are threads here that a job's processes would not share.
    Add(CheckLimits(job_, computes_here_));
    const bool is_secure = Secure();
    // All servers are called at once, beside what follows, as one that is silent takes seconds.
    std::vector<std::future<ServerCall>> calls;
    for (const std::string& address : job_.cluster().servers().addresses()) {
      calls.push_back(
          std::async(std::launch::async, CallServer, static_cast<int>(calls.size()), address));
    }
    if (computes_here_) {
      Data();
      Add(CheckDevice(job_, CreateBackend, std::thread::hardware_concurrency()));
    }
    Add(CheckDisk(job_, recipe_, shape_));
    Initial();
    Etcd();
    Servers(&calls);
    if (is_secure) Add(CheckSecurity(FilesOf(job_.security()), hosts_here_, absl::Now()));
    Memory();
    if (delay_) {
      const int64_t bytes = LargestShardBytes(shape_, ShardingOf(recipe_, servers));
      // How many connections a limit leaves is told with its windows.
      const int connections = job_.cluster().memory_limit() > 0 ? 1 : kStripesMax;
      Add(CheckKernelNetwork(ReadKernelNetwork(), *delay_, bytes, connections));
    }
    const auto rows = data_ ? std::optional<int64_t>(data_->train.rows()) : std::nullopt;
    for (std::string& note : NotesOn(job_, recipe_, rows)) Note(std::move(note), "");
    // Reading a checkpoint takes as long as its bytes do.
    const JobFacts facts = FactsOf(job_, recipe_, shape_, JobDigest(job_));
    Add(CheckCheckpoints(job_.checkpoint(), facts, is_running_));
    if (options_.json) std::printf("%s\n", FindingsJson(kept_, problems_).c_str());
    return problems_;
  }

 private:
  void Tell(const Finding& finding) {
    if (options_.json) {
      kept_.push_back(finding);
    } else {
      Print(finding);
    }
    problems_ += finding.kind == Finding::Kind::kProblem;
  }
  void Add(const Findings& findings) {
    for (const Finding& each : findings) Tell(each);
  }
  void Good(std::string what) { Tell({Finding::Kind::kGood, std::move(what), ""}); }
  void Note(std::string what, std::string advice) {
    Tell({Finding::Kind::kNote, std::move(what), std::move(advice)});
  }
  void Problem(std::string what, std::string advice) {
    Tell({Finding::Kind::kProblem, std::move(what), std::move(advice)});
  }

  // Whether servers here could begin with the file that the job names.
  void Initial() {
    if (!initial_file_.ok()) {
      Problem(std::string(initial_file_.status().message()),
              "servers would end with 2; give it to all machines that have servers");
    } else if (*initial_file_ != nullptr) {
      const std::string others = (*initial_file_)->DescribeOthers();
      const bool of_tensors = IsOfTensors(job_.model());
      Good(absl::StrFormat("%s: \"%s\", sum %016x%s%s", of_tensors ? "model.tensors" : "model.init",
                           of_tensors ? job_.model().tensors() : job_.model().init(),
                           (*initial_file_)->sum(),
                           others.empty() ? "" : "; the model has no tensors ", others));
    }
  }

  void Data() {
    const JobReading reading = ReadJobFile(options_.job_path, options_.overrides, kDataFilesAlone);
    const std::string fetch = FetchAdvice(reading.job);
    for (const JobError& error : reading.errors) {
      Problem(absl::StrCat(error.key, ": ", error.message),
              absl::StrCat(fetch, fetch.empty() ? "" : "; ",
                           "workers need the data; on a machine that has servers only, use "
                           "--no-data"));
    }
    if (!reading.ok()) return;
    DataFindings data = CheckData(job_, shape_);
    Add(data.findings);
    data_ = std::move(data.data);
  }

  // The memory is judged only while the job does not run: processes that run have theirs, and it is not in what is
  // left.
  void Memory() {
    if (!data_ && computes_here_) return;
    Add(CheckMemory(job_, recipe_, shape_, data_.get(), is_running_ ? std::nullopt : machine_));
    if (delay_) Add(CheckWindows(job_, recipe_, shape_, data_.get(), *delay_));
  }

  // Sets the security of all calls from here on. False: a file cannot be used, and that was told.
  bool Secure() {
    if (const absl::Status status = UseSecurity(FilesOf(job_.security())); !status.ok()) {
      Problem(std::string(status.message()), "correct the file, or the key under security");
      return false;
    }
    if (CurrentSecurity().calls_tls()) {
      Good(absl::StrCat("security: ", CurrentSecurity().Describe()));
    }
    return true;
  }

  // Asks etcd's members, where the servers elect the coordinator.
  void Etcd() {
    const auto& members = job_.cluster().coordinator().etcd();
    for (const std::string& member : members) {
      const absl::StatusOr<std::unique_ptr<EtcdClient>> etcd =
          EtcdClient::Create({{member}, absl::Seconds(3)});
      if (!etcd.ok()) {
        Problem(std::string(etcd.status().message()), "correct cluster.coordinator.etcd");
        continue;
      }
      const absl::StatusOr<std::optional<EtcdValue>> coordinator =
          (*etcd)->Get(EtcdPrefix(JobDigest(job_)) + "/coordinator");
      if (!coordinator.ok()) {
        Problem(
            std::string(coordinator.status().message()),
            "start etcd there, look at its client URLs and at the firewall; without most of its "
            "members no server can be elected");
        continue;
      }
      Good(absl::StrCat("etcd at ", member, ": ",
                        coordinator->has_value()
                            ? absl::StrCat("the coordinator is at ", (*coordinator)->value)
                            : "no server has been elected yet"));
    }
  }

  void Servers(std::vector<std::future<ServerCall>>* calls) {
    const auto& addresses = job_.cluster().servers().addresses();
    if (addresses.empty()) {
      hosts_here_.push_back("127.0.0.1");
      return Note("servers: cluster.servers is a number, so that there is nobody to call",
                  "`tessera run` starts them on this machine; for several machines list host:port");
    }
    std::vector<MissingServer> missing;
    std::vector<std::string> bare;
    for (int rank = 0; rank < addresses.size(); ++rank) {
      const std::string& address = addresses[rank];
      const ServerCall call = (*calls)[static_cast<size_t>(rank)].get();
      if (call.port.is_own) AddHost(address);
      Add(call.name);
      if (call.reach == Reach::kOpen && call.answer.ok()) {
        Answer(rank, address, call);
        continue;
      }
      missing.push_back({rank, address, call.reach, kConnectMax, call.port, call.answer});
      // A server that answers was started all the same, with another address to listen at.
      if (call.reach != Reach::kOpen && IsExposed(address, job_.security())) {
        bare.push_back(address);
      }
    }
    for (const MissingServer& each : missing) {
      Tell(JudgeMissing(each, is_running_, CurrentSecurity().calls_tls()));
    }
    if (bare.empty()) return;
    Problem(absl::StrCat("security: none, and other machines can reach ", absl::StrJoin(bare, ", "),
                         ": a server that is started there ends at once with 2"),
            kSecurityAdvice);
  }

  void AddHost(const std::string& address) {
    const std::string host = ParseHostPort(address)->host;
    if (std::find(hosts_here_.begin(), hosts_here_.end(), host) == hosts_here_.end()) {
      hosts_here_.push_back(host);
    }
  }

  void Answer(int rank, const std::string& address, const ServerCall& call) {
    WantedServer want;
    want.rank = rank;
    want.address = address;
    want.job_digest = JobDigest(job_);
    const Sharding sharding =
        ShardingOf(recipe_, static_cast<int>(job_.cluster().servers().count()));
    want.layout_hash = LayoutHash(shape_, sharding);
    const absl::StatusOr<uint64_t> hash =
        initial_file_.ok()
            ? InitialHash({shape_, job_.seed(), initial_file_->get()},
                          SlicesOf(shape_, ShardAt(recipe_.placement, rank), sharding))
            : initial_file_.status();
    want.initial_hash = hash.value_or(0);
    want.version = kVersion;
    const v1::JobStatus& status = call.status;
    is_running_ = is_running_ || status.job_digest() == want.job_digest;
    Add(JudgeServer(want, status, call.asked, call.answered));
    const bool is_further = !delay_ || call.round_trip > delay_->round_trip;
    if (call.round_trip < absl::InfiniteDuration() && is_further) {
      delay_ = MeasuredDelay{address, call.round_trip};
    }
    // Only a waiting job is told of: in training, workers wait for each other all the time.
    if (rank == 0 && status.state() == "waiting" && !status.waiting_for().empty()) {
      Note(absl::StrCat("the job waits for ", absl::StrJoin(status.waiting_for(), ", ")),
           "start what is missing, or see the log of what was started");
    }
  }

  const DoctorOptions& options_;
  const v1::Job job_;
  const Recipe recipe_;
  const ModelShape shape_;
  // Our workers run here. Of a job of tensors nothing is known of the programs that do.
  const bool computes_here_ = !options_.no_data && !IsOfTensors(job_.model());
  const absl::StatusOr<std::shared_ptr<const InitialFile>> initial_file_ =
      OpenInitialFile(job_.model(), InitialFactors(job_, recipe_, shape_));
  const std::optional<MachineMemory> machine_ = ReadAvailableMemory();  // before the data are read
  std::unique_ptr<Datasets> data_;                                      // where they could be read
  std::vector<std::string> hosts_here_;                                 // of cluster.servers
  bool is_running_ = false;
  std::optional<MeasuredDelay> delay_;  // to the server that is furthest away, of those that answer
  Findings kept_;                       // for JSON
  int problems_ = 0;
};

}  // namespace

int ExamineJob(const DoctorOptions& options) {
  const JobReading reading =
      ReadJobFile(options.job_path, options.overrides, MayBeOpen({/*check_files=*/false}));
  if (!reading.ok()) {
    TellJobErrors(reading);
    return 2;
  }
  absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
  const absl::StatusOr<ModelShape> shape =
      recipe.ok() ? ExchangedShape(reading.job.model(), *recipe) : recipe.status();
  if (!shape.ok()) {
    std::fprintf(stderr, "%s: %s\n", options.job_path.c_str(),
                 std::string(shape.status().message()).c_str());
    return 2;
  }
  const int problems = Examination(options, reading.job, *std::move(recipe), *shape).Run();
  if (options.json) return problems == 0 ? 0 : 1;
  if (problems == 0) {
    std::printf("no problem found\n");
    return 0;
  }
  std::printf("%d %s\n", problems, problems == 1 ? "problem" : "problems");
  return 1;
}

}  // namespace tessera

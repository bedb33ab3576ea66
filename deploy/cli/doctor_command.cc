#include "deploy/cli/doctor_command.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/process.h"
#include "common/checkpoint/manifest.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "common/etcd/coordinator_key.h"
#include "common/etcd/etcd_client.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/method/recipe.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/security.h"
#include "common/rule/optimizer.h"
#include "deploy/cli/check_notes.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/wrap.h"
#include "deploy/doctor/checkpoint_check.h"
#include "deploy/doctor/data_check.h"
#include "deploy/doctor/device_check.h"
#include "deploy/doctor/findings.h"
#include "deploy/doctor/machine_memory.h"
#include "deploy/doctor/memory_check.h"
#include "deploy/doctor/reachability.h"
#include "deploy/doctor/server_check.h"
#include "kernels/devices.h"
#include "proto/status.grpc.pb.h"
#include "server/control/job_facts.h"
#include "server/shard/stored_values.h"

namespace tessera {
namespace {

constexpr absl::Duration kConnectMax = absl::Seconds(3);
constexpr std::chrono::seconds kAnswerMax{10};
constexpr int kCertificateDaysMin = 7;

class Examination {
 public:
  Examination(const DoctorOptions& options, v1::Job job, Recipe recipe, ModelShape shape)
      : options_(options),
        job_(std::move(job)),
        recipe_(std::move(recipe)),
        shape_(std::move(shape)) {}

  Findings Run() {
    const int servers = static_cast<int>(job_.cluster().servers().count());
    Good(absl::StrFormat("job: %s, %d parameters (%.1f MiB), %s, %s, digest %s", recipe_.name,
                         shape_.size, shape_.size * 4.0 / (1 << 20), Counted(servers, "server"),
                         Counted(job_.cluster().workers(), "worker"),
                         JobDigest(job_).substr(0, 12)));
    if (!options_.no_data) {
      Data();
      Add(CheckDevice(job_, CreateBackend));
    }
    Certificates();
    Disk();
    Etcd();
    Servers();
    Memory();
    const auto rows = data_ ? std::optional<int64_t>(data_->train.rows()) : std::nullopt;
    for (std::string& note : NotesOn(job_, recipe_, rows)) Note(std::move(note), "");
    // Reading one takes as long as its bytes do.
    const JobFacts facts = FactsOf(job_, recipe_, shape_, JobDigest(job_));
    Add(CheckCheckpoints(job_, *facts.model_manifest, is_running_));
    return std::move(findings_);
  }

 private:
  void Add(Findings findings) {
    for (Finding& each : findings) findings_.push_back(std::move(each));
  }
  void Good(std::string what) { findings_.push_back({Finding::Kind::kGood, std::move(what), ""}); }
  void Note(std::string what, std::string advice) {
    findings_.push_back({Finding::Kind::kNote, std::move(what), std::move(advice)});
  }
  void Problem(std::string what, std::string advice) {
    findings_.push_back({Finding::Kind::kProblem, std::move(what), std::move(advice)});
  }

  void Data() {
    const JobReading reading = ReadJobFile(options_.job_path, options_.overrides, JobOptions{});
    for (const JobError& error : reading.errors) {
      Problem(absl::StrCat(error.key, ": ", error.message),
              "workers need the data; on a machine that has servers only, use --no-data");
    }
    if (!reading.ok()) return;
    DataFindings data = CheckData(job_, shape_);
    Add(std::move(data.findings));
    data_ = std::move(data.data);
  }

  // What runs has its memory, and is not in what is left.
  void Memory() {
    if (!data_ && !options_.no_data) return;
    Add(CheckMemory(job_, recipe_, shape_, data_.get(), is_running_ ? std::nullopt : machine_));
  }

  void Certificates() {
    const SecurityFiles files = FilesOf(job_.security());
    if (const absl::Status status = UseSecurity(files); !status.ok()) {
      return Problem(std::string(status.message()), "correct the file, or the key under security");
    }
    if (CurrentSecurity().calls_tls()) {
      Good(absl::StrCat("security: ", CurrentSecurity().Describe()));
    }
    for (const auto& [key, path] :
         {std::pair("certificate", files.certificate), std::pair("authority", files.authority)}) {
      if (!path.empty()) Expiry(key, path);
    }
  }

  void Expiry(const char* key, const std::string& path) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "r"), std::fclose);
    if (file == nullptr) return;
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
    int days = 0, seconds = 0;
    if (certificate == nullptr ||
        ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate.get())) != 1) {
      return Problem(
          absl::StrCat("security.", key, ": \"", path, "\" holds no certificate that can be read"),
          "make it anew; docs/operating.md, Security");
    }
    if (days < 0 || seconds < 0) {
      Problem(absl::StrCat("security.", key, ": \"", path, "\" has expired"), "sign a new one");
    } else if (days < kCertificateDaysMin) {
      Note(absl::StrCat("security.", key, ": \"", path, "\" expires in ", days, " days"),
           "sign a new one before the job is long under way");
    }
  }

  // Where a server writes `directory`, of whose last folders it makes `made`; empty: it cannot, and that was told.
  std::string WritableAt(const char* key, const std::string& directory, int made) {
    std::error_code error;
    std::filesystem::path at = std::filesystem::absolute(directory).lexically_normal();
    if (!at.has_filename()) at = at.parent_path();  // "a/b/"
    const bool is_there = std::filesystem::exists(at, error);
    for (int i = 0; i < made && !std::filesystem::exists(at, error); ++i) at = at.parent_path();
    if (!std::filesystem::exists(at, error)) {
      Problem(absl::StrCat(key, ": \"", directory, "\" cannot be made: \"", at.string(),
                           "\" is not there, and servers make the last ",
                           made == 1 ? "folder" : "two folders", " alone"),
              absl::StrCat("make it: mkdir -p ", at.string(), "; or name another folder"));
      return "";
    }
    // As a server does: the right to write is not all that it takes. Servers remove what is called so.
    std::string probe = absl::StrCat(at.string(), "/", kPartialPrefix, "doctor-XXXXXX");
    if (mkdtemp(probe.data()) == nullptr) {
      const char* const why = std::strerror(errno);
      Problem(absl::StrCat(key, ": \"", directory, "\" cannot be ",
                           is_there ? "written: " : "made: ", why),
              "give this user the right to write there, or name another folder");
      return "";
    }
    rmdir(probe.c_str());
    return at.string();
  }

  // One of them, by all processes, which share the folder: the servers' parameters and states, and each worker's file
  // (worker_file.h). Of halves of the layers as if each were the whole.
  double CheckpointBytes() const {
    double floats = static_cast<double>(shape_.size) * (1.0 + ServerStates(recipe_).size());
    double own = 0;  // arrays of each worker
    if (recipe_.payload == PayloadKind::kDelta && recipe_.averaged_states.empty()) {
      own += StateNames(job_.train().optimizer()).size();
    }
    if (recipe_.core) own += 1;
    if (recipe_.codecs.holds_back()) own += 1;
    floats += own * static_cast<double>(shape_.size * job_.cluster().workers());
    return sizeof(float) * floats;
  }

  // Where checkpoints and the coordinator's state go.
  void Disk() {
    const v1::CoordinatorPlace& place = job_.cluster().coordinator();
    if (!place.directory().empty() && place.etcd().empty()) {
      WritableAt("cluster.coordinator.directory", place.directory(), 2);
    }
    const std::string& directory = job_.checkpoint().directory();
    if (directory.empty()) return;
    const std::string at = WritableAt("checkpoint.directory", directory, 1);
    if (at.empty()) return;
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(at, error);
    if (error) return;
    // One more is there while an old one is not yet gone.
    const double need = CheckpointBytes() * static_cast<double>(job_.checkpoint().keep() + 1);
    if (static_cast<double>(space.available) < need) {
      return Problem(absl::StrCat("checkpoint.directory: \"", directory, "\" has ",
                                  Bytes(space.available), " left, want ", Bytes(need), " for ",
                                  job_.checkpoint().keep() + 1, " checkpoints of the job"),
                     "make room, keep fewer (checkpoint.keep), or name another folder");
    }
    Good(absl::StrCat("checkpoints: ", Bytes(space.available), " left in ", directory));
  }

  // Where the servers elect the coordinator.
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

  void Servers() {
    const auto& addresses = job_.cluster().servers().addresses();
    if (addresses.empty()) {
      return Note("servers: cluster.servers is a number, so that there is nobody to call",
                  "`tessera run` starts them on this machine; for several machines list host:port");
    }
    std::vector<std::string> bare;
    for (int rank = 0; rank < addresses.size(); ++rank) {
      const std::string& address = addresses[rank];
      // One that is there listens elsewhere.
      if (!Server(rank, address) && IsExposed(address, job_.security())) bare.push_back(address);
    }
    if (bare.empty()) return;
    Problem(absl::StrCat("security: none, and other machines can reach ", absl::StrJoin(bare, ", "),
                         ": a server that is started there ends at once with 2"),
            kSecurityAdvice);
  }

  // Whether somebody listens there.
  bool Server(int rank, const std::string& address) {
    const std::string who = absl::StrCat("server ", rank, " at ", address);
    const Reach reach = TryConnect(address, kConnectMax);
    if (reach == Reach::kOpen) {
      Listener(rank, address, who);
    } else {
      Unreached(rank, who, reach);
    }
    return reach == Reach::kOpen;
  }

  void Unreached(int rank, const std::string& who, Reach reach) {
    switch (reach) {
      case Reach::kOpen:
        break;
      case Reach::kRefused:
        return Problem(
            absl::StrCat(who, ": its machine refuses connections to that port"),
            absl::StrCat("start it there: tessera-server --job JOB --rank ", rank,
                         "; if it runs, it listens on another port or on loopback alone"));
      case Reach::kSilent:
        return Problem(absl::StrCat(who, ": no answer within ", absl::FormatDuration(kConnectMax)),
                       "its machine is down, or a firewall drops TCP to that port");
      case Reach::kNoRoute:
        return Problem(absl::StrCat(who, ": this machine knows no way there"),
                       "look at the address in cluster.servers and at this machine's network");
      case Reach::kUnknownHost:
        return Problem(absl::StrCat(who, ": the host's name is not known here"),
                       "correct the name in cluster.servers, or use an IP address");
    }
  }

  void Listener(int rank, const std::string& address, const std::string& who) {
    const auto stub = v1::Status::NewStub(OpenControlChannel(address, Role::kViewer));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerMax);
    v1::JobStatus status;
    const absl::Time asked = absl::Now();
    const grpc::Status result = stub->Get(&context, v1::StatusRequest(), &status);
    if (!result.ok()) {
      return Problem(absl::StrCat(who, ": somebody listens there and gives no status: ",
                                  result.error_message()),
                     CurrentSecurity().calls_tls() ? "another program, a server without TLS, or "
                                                     "certificates and tokens that do not fit; "
                                                     "docs/operating.md, Security"
                                                   : "another program, or a server with TLS: then "
                                                     "the job here wants security.authority");
    }
    WantedServer want;
    want.rank = rank;
    want.address = address;
    want.job_digest = JobDigest(job_);
    const int shards =
        ShardCount(recipe_.placement, static_cast<int>(job_.cluster().servers().count()));
    want.layout_hash = LayoutHash(shape_, shards);
    want.initial_hash = InitialHash(
        shape_, SlicesOf(shape_, ShardAt(recipe_.placement, rank), shards), job_.seed());
    want.version = kVersion;
    is_running_ = is_running_ || status.job_digest() == want.job_digest;
    Add(JudgeServer(want, status, asked, absl::Now()));
    // In training, workers wait for each other all the time.
    if (rank == 0 && status.state() == "waiting" && !status.waiting_for().empty()) {
      Note(absl::StrCat("the job waits for ", absl::StrJoin(status.waiting_for(), ", ")),
           "start what is missing, or see the log of what was started");
    }
  }

  const DoctorOptions& options_;
  const v1::Job job_;
  const Recipe recipe_;
  const ModelShape shape_;
  const std::optional<MachineMemory> machine_ = ReadAvailableMemory();  // before the data are read
  std::unique_ptr<Datasets> data_;                                      // where they could be read
  bool is_running_ = false;
  Findings findings_;
};

void Print(const Finding& finding, int width) {
  static constexpr const char* kMarks[] = {"ok       ", "note     ", "PROBLEM  "};
  constexpr int kIndent = 9;
  const auto print = [&](const char* lead, const std::string& text) {
    for (const std::string& line : Wrap(text, std::max(30, width - kIndent))) {
      std::printf("%s%s\n", lead, line.c_str());
      lead = "         ";
    }
  };
  print(kMarks[static_cast<int>(finding.kind)], finding.what);
  if (!finding.advice.empty()) print("      -> ", finding.advice);
}

}  // namespace

int ExamineJob(const DoctorOptions& options) {
  const JobReading reading =
      ReadJobFile(options.job_path, options.overrides, JobOptions{/*check_files=*/false});
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
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
  const Findings findings = Examination(options, reading.job, *std::move(recipe), *shape).Run();
  int problems = 0;
  for (const Finding& finding : findings) {
    Print(finding, TerminalWidth());
    problems += finding.kind == Finding::Kind::kProblem;
  }
  if (problems == 0) {
    std::printf("no problem found\n");
    return 0;
  }
  std::printf("%d %s\n", problems, problems == 1 ? "problem" : "problems");
  return 1;
}

}  // namespace tessera

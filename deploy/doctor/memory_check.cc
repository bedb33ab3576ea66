#include "deploy/doctor/memory_check.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/rpc/transport.h"
#include "deploy/cli/counted.h"
#include "server/server_memory.h"
#include "worker/worker_memory.h"

namespace tessera {
namespace {

// What one kind of process needs.
struct Need {
  const char* who;
  // How many of them are on this machine.
  int64_t count = 0;
  // Bytes that one of them uses at most, and the least that it can do with.
  int64_t most = 0;
  int64_t least = 0;
  // The sum in words, of what is used under the limit.
  std::string parts;
  WindowPlan windows;
};

// Whether all servers are on this machine, so that all processes share its memory.
bool IsAllHere(const v1::Job& job) {
  const auto& addresses = job.cluster().servers().addresses();
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const std::string& each) { return IsLoopback(each); });
}

// What the job's servers need, at most and at least.
// The most is with all choices that a limit leaves; the least with none (a limit of 0).
Need ServersOf(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
               int64_t bytes_max) {
  Need need;
  need.who = "server";
  // Slices are about as large as each other.
  const ServerMemory most = PlanServerMemory(job, recipe, shape, 0, bytes_max);
  need.most = most.total();
  need.least = PlanServerMemory(job, recipe, shape, 0, 0).total();
  need.parts = most.Describe();
  need.windows = most.windows;
  return need;
}

// What the job's workers need, at most and at least; the data are read already, so that their size is known.
absl::StatusOr<Need> WorkersOf(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                               const Datasets& data, int64_t bytes_max) {
  Need need;
  need.who = "worker";
  const absl::StatusOr<WorkerMemory> most = PlanWorkerMemory(job, recipe, shape, data, bytes_max);
  const absl::StatusOr<WorkerMemory> least = PlanWorkerMemory(job, recipe, shape, data, 0);
  if (!most.ok()) return most.status();
  if (!least.ok()) return least.status();
  need.most = most->total();
  need.least = least->total();
  need.parts = most->Describe();
  need.windows = most->windows;
  return need;
}

// Compares the sum over all processes here with what the machine, or its container, has left.
Finding JudgeTogether(const v1::Job& job, const std::vector<Need>& needs,
                      const MachineMemory& machine) {
  std::vector<std::string> words;
  double most = 0, least = 0;
  int64_t processes = 0;
  for (const Need& need : needs) {
    // Nothing of that kind runs here.
    if (need.count == 0) continue;
    words.push_back(absl::StrCat(Counted(need.count, need.who), " with ",
                                 Bytes(static_cast<double>(need.most)),
                                 need.count > 1 ? " each" : ""));
    processes += need.count;
    most += static_cast<double>(need.count) * static_cast<double>(need.most);
    least += static_cast<double>(need.count) * static_cast<double>(need.least);
  }
  const auto available = static_cast<double>(machine.bytes);
  // Where there is one process the sum is its own.
  const std::string who = processes == 1 ? words[0].substr(0, words[0].find(" with ")) + " takes"
                                         : absl::StrJoin(words, " and ") + " take";
  const std::string text = absl::StrCat("memory: ", who, " up to ", Bytes(most), ", and ",
                                        machine.of, " has ", Bytes(available), " available");
  // Even with the smallest choices there is too little.
  if (least > available) {
    return {Finding::Kind::kProblem, absl::StrCat(text, "; at least ", Bytes(least), " are needed"),
            "use more machines, fewer workers here, or a smaller train.batch_size or model; "
            "docs/operating/resources.md"};
  }
  if (most > available) {
    // A worker on a GPU takes no limit.
    if (job.cluster().device() != "cpu") {
      return {Finding::Kind::kNote, text,
              "the job may be killed for memory; use more machines, or fewer workers here"};
    }
    return {Finding::Kind::kNote, text,
            absl::StrCat("the job may be killed for memory; cluster.memory_limit makes its "
                         "processes do with less, at least ",
                         Bytes(least), " together")};
  }
  return {Finding::Kind::kGood, text, ""};
}

// A way over which a narrow window carries so many bytes a second costs nothing that a program would notice.
constexpr double kUnnoticedRate = 1e9;

// Bytes a second of one connection, which has a window in flight at most.
std::string RateOf(int64_t window, absl::Duration round_trip) {
  return absl::StrCat(Bytes(static_cast<double>(window) / absl::ToDoubleSeconds(round_trip)),
                      " a second");
}

// What the limit costs connections that a process of this kind reads from. `free_bytes` is what it would take without a
// limit, its windows left out.
Finding JudgeWindows(const Need& need, int64_t free_bytes, const MeasuredDelay& delay) {
  const std::string way =
      absl::StrCat(absl::StrFormat("%.0f", absl::ToDoubleMilliseconds(delay.round_trip)),
                   " ms, as measured to ", delay.address);
  const std::string start = absl::StrCat("cluster.memory_limit: a ", need.who, " has ");
  if (need.windows.kind() == Windows::kFollowing) {
    const int stripes = need.windows.stripes();
    return {Finding::Kind::kGood,
            absl::StrCat(start, Bytes(static_cast<double>(need.windows.bytes())),
                         " left for windows that follow the network; at ", way, ", a call has ",
                         Counted(stripes, "connection"), ", which ",
                         stripes == 1 ? "brings " : "bring ",
                         RateOf(stripes * kWindowBytesMax, delay.round_trip), " at most",
                         stripes == kStripesMax ? ", as without a limit" : ""),
            ""};
  }
  const int64_t following_bytes = need.windows.following_bytes();
  return {Finding::Kind::kNote,
          absl::StrCat(start, "narrow windows; at ", way, ", a connection brings ",
                       RateOf(kNarrowWindowBytes, delay.round_trip), " at most"),
          following_bytes == 0
              ? "this method has narrow windows under any limit"
              // All choices that a process has come before its windows.
              : absl::StrCat("with a limit of ", free_bytes + following_bytes,
                             " bytes windows would follow the network, and a connection bring ",
                             RateOf(kWindowBytesMax, delay.round_trip), " at most")};
}

// What servers and, where `data` says what they need, workers take under `bytes_max`.
absl::StatusOr<std::vector<Need>> NeedsOf(const v1::Job& job, const Recipe& recipe,
                                          const ModelShape& shape, const Datasets* data,
                                          int64_t bytes_max) {
  std::vector<Need> needs = {ServersOf(job, recipe, shape, bytes_max)};
  // On a GPU the worker's memory is the device's.
  if (data != nullptr && job.cluster().device() == "cpu") {
    TESSERA_ASSIGN_OR_RETURN(Need workers, WorkersOf(job, recipe, shape, *data, bytes_max));
    needs.push_back(std::move(workers));
  }
  return needs;
}

}  // namespace

Findings CheckMemory(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                     const Datasets* data, const std::optional<MachineMemory>& machine) {
  // Without a limit a process takes what it likes best.
  const int64_t limit = job.cluster().memory_limit();
  const int64_t bytes_max = limit > 0 ? limit : std::numeric_limits<int64_t>::max();
  const bool all_here = IsAllHere(job);
  absl::StatusOr<std::vector<Need>> planned = NeedsOf(job, recipe, shape, data, bytes_max);
  if (!planned.ok()) {
    return {{Finding::Kind::kProblem, absl::StrCat("memory: ", planned.status().message()),
             "workers would end with 2"}};
  }
  std::vector<Need>& needs = *planned;
  // On a machine of one of many servers there is one server, or one worker where data are checked.
  needs[0].count = all_here ? job.cluster().servers().count() : data == nullptr ? 1 : 0;
  if (needs.size() > 1) needs[1].count = all_here ? job.cluster().workers() : 1;
  Findings findings;
  for (const Need& need : needs) {
    // A process refuses to start where its plan is above the limit.
    if (limit == 0 || need.most <= limit) continue;
    findings.push_back(
        {Finding::Kind::kProblem,
         absl::StrCat("cluster.memory_limit: is ", limit, " bytes, but a ", need.who, " needs ",
                      need.most, " = ", need.parts),
         absl::StrCat(need.who,
                      "s would end with 2; raise it, or see docs/operating/resources.md")});
  }
  const bool any =
      std::any_of(needs.begin(), needs.end(), [](const Need& need) { return need.count > 0; });
  // Findings about the limit come first: with another limit the sum is another one.
  if (machine && any && findings.empty()) findings.push_back(JudgeTogether(job, needs, *machine));
  return findings;
}

Findings CheckWindows(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                      const Datasets* data, const MeasuredDelay& delay) {
  const int64_t limit = job.cluster().memory_limit();
  const double narrow =
      static_cast<double>(kNarrowWindowBytes) / absl::ToDoubleSeconds(delay.round_trip);
  if (limit == 0 || narrow >= kUnnoticedRate) return {};
  // Errors are CheckMemory's to tell.
  const absl::StatusOr<std::vector<Need>> needs = NeedsOf(job, recipe, shape, data, limit);
  if (!needs.ok()) return {};
  // Without a limit a process takes all that is of use to it, and that is what windows come behind.
  const absl::StatusOr<std::vector<Need>> free =
      NeedsOf(job, recipe, shape, data, std::numeric_limits<int64_t>::max());
  if (!free.ok()) return {};
  Findings findings;
  for (size_t i = 0; i < needs->size(); ++i) {
    if ((*needs)[i].most <= limit) {
      findings.push_back(JudgeWindows((*needs)[i], (*free)[i].most, delay));
    }
  }
  return findings;
}

}  // namespace tessera

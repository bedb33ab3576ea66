#include "deploy/doctor/memory_check.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
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

}  // namespace

Findings CheckMemory(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                     const Datasets* data, const std::optional<MachineMemory>& machine) {
  // Without a limit a process takes what it likes best.
  const int64_t limit = job.cluster().memory_limit();
  const int64_t bytes_max = limit > 0 ? limit : std::numeric_limits<int64_t>::max();
  const bool all_here = IsAllHere(job);
  std::vector<Need> needs = {ServersOf(job, recipe, shape, bytes_max)};
  // On a machine of one of many servers there is one server, or one worker where data are checked.
  needs[0].count = all_here ? job.cluster().servers().count() : data == nullptr ? 1 : 0;
  // On a GPU the worker's memory is the device's.
  if (data != nullptr && job.cluster().device() == "cpu") {
    absl::StatusOr<Need> workers = WorkersOf(job, recipe, shape, *data, bytes_max);
    if (!workers.ok()) {
      return {{Finding::Kind::kProblem, absl::StrCat("memory: ", workers.status().message()),
               "workers would end with 2"}};
    }
    workers->count = all_here ? job.cluster().workers() : 1;
    needs.push_back(*std::move(workers));
  }
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

}  // namespace tessera

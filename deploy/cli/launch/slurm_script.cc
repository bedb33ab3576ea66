#include "deploy/cli/launch/slurm_script.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/rpc/security.h"
#include "deploy/cli/run/pasted_command.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

// What does not depend on the job. `srun` asks for a node by name, and processes call it by its address.
constexpr char kBody[] = R"script(
set -u
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
count=${#nodes[@]}
address_of() { scontrol show node "$1" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p' | head -n 1; }
# Jobs that share a node have other ports, as long as their numbers are near.
first_port=$((@PORT@ + SLURM_JOB_ID % @JOBS@ * @PORTS@))
listed=
for ((rank = 0; rank < @SERVERS@; ++rank)); do
  listed+=${listed:+, }$(address_of "${nodes[rank % count]}"):$((first_port + rank / count))
done
job=(@JOB@ --set "cluster.servers=[$listed]")
coordinator=${listed%%,*}
logs=@LOGS@/$SLURM_JOB_ID
report=@REPORT@
mkdir -p "$logs"
echo "tessera: servers: $listed; logs are in $logs"

doctor=$logs/doctor.log
if ! srun --overlap --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --kill-on-bad-exit=0 \
  --input=none --label --output="$doctor" @PROGRAMS@/tessera doctor "${job[@]:1}"; then
  echo "tessera: nodes cannot take part:" >&2
  grep -A 3 PROBLEM "$doctor" >&2 || cat "$doctor" >&2
  exit 1
fi

# Starts a process on a node: NAME NODE PROGRAM ARGUMENT...
step() {
  local name=$1 node=$2
  shift 2
  mkdir -p "$logs/$node"
  srun --overlap --no-kill --nodes=1 --ntasks=1 --nodelist="$node" --input=none \
    --job-name="$name" --output="$logs/$node/$name.log" "$@" &
}
for ((rank = 0; rank < @SERVERS@; ++rank)); do
  more=()
  ((rank == 0)) && more=(--report "$report")
  step "server-$rank" "${nodes[rank % count]}" @PROGRAMS@/tessera-server "${job[@]}" \
    --rank "$rank" --no-takeover "${more[@]}"
  ((rank == 0)) && first=$!
done
for ((rank = 0; rank < @WORKERS@; ++rank)); do
  node=${nodes[rank % count]}
  more=()
  if ((rank >= @CALLED@)); then
    more=(--listen "$(address_of "$node"):$((first_port + @SERVERS@ + rank))")
  fi
  step "worker-$rank" "$node" @PROGRAMS@/tessera-worker "${job[@]}" --rank "$rank" \
    "${more[@]}"
done

# Slurm asks the script to end before the time is over; so does scancel --batch --signal=TERM.
finish() {
  @PROGRAMS@/tessera drain "$coordinator" --reason "SIGTERM to the Slurm job"@SECURITY@
}
trap finish TERM
code=0
while :; do
  wait "$first"
  code=$?
  kill -0 "$first" 2>/dev/null || break
done
# The job has ended: what is on a node that is gone is not waited for.
for ((i = 0; i < 30; ++i)); do
  [[ -z $(jobs -r) ]] && break
  sleep 1
done
echo "tessera: the job ended with $code; its report is $report"
exit "$code"
)script";

// A name that Slurm shows in one word.
std::string JobName(const std::string& name) {
  std::string text = name.substr(0, 60);
  for (char& c : text) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') c = '_';
  }
  return text.empty() ? "tessera" : text;
}

}  // namespace

absl::StatusOr<std::string> SlurmScript(const v1::Job& job, const Recipe& recipe,
                                        const SlurmOptions& options) {
  const v1::Servers& servers = job.cluster().servers();
  if (!servers.addresses().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.servers: got ", servers.addresses_size(),
                     " addresses, want a number: Slurm chooses the nodes; --set cluster.servers=",
                     servers.addresses_size()));
  }
  // Workers compute, and have a node each where nothing else was asked for; servers share the nodes' cores with them.
  const int64_t workers = job.cluster().workers();
  const int64_t nodes = options.nodes > 0 ? options.nodes : workers;
  const auto on_each = [nodes](int64_t count) { return (count + nodes - 1) / nodes; };
  // A server on each node that has one, and a port for each worker that others call.
  const int64_t ports =
      on_each(servers.count()) + (recipe.split.has_value() ? servers.count() + workers : 0);
  constexpr int64_t kPortsEnd = 32768;  // From here on the kernel takes ports by itself.
  const int64_t jobs = std::max<int64_t>(1, (kPortsEnd - options.port) / ports);
  std::vector<std::string> words = {"--job", options.job_path};
  for (const std::string& override : options.overrides) {
    words.insert(words.end(), {"--set", override});
  }
  // All end with one: there is nobody to elect.
  if (job.cluster().coordinator().etcd_size() > 0) {
    words.insert(words.end(), {"--set", "cluster.coordinator.etcd=[]"});
  }
  const int64_t called = recipe.split.has_value() ? recipe.split->front_workers : workers;
  std::string head = absl::StrCat(
      "#!/bin/bash\n# Written by `tessera launch --slurm`: submit it with sbatch.\n#SBATCH "
      "--job-name=",
      JobName(job.name()), "\n#SBATCH --nodes=", nodes,
      "\n#SBATCH --ntasks-per-node=", on_each(workers),
      "\n#SBATCH --cpus-per-task=", job.cluster().threads(),
      "\n# A node that is lost is a loss of its processes, after which the others go on as they "
      "can.\n"
      "#SBATCH --no-kill\n#SBATCH --no-requeue\n#SBATCH --signal=B:TERM@60\n#SBATCH --output=",
      options.log_directory, "/slurm-%j.out\n");
  for (const std::string& each : options.sbatch) absl::StrAppend(&head, "#SBATCH ", each, "\n");
  // In the script's words where it depends on the job's number.
  const std::string report = options.report_path.empty() ? std::string("$logs/report.json")
                                                         : ShellWord(options.report_path);
  return head +
         absl::StrReplaceAll(kBody, {{"@PORT@", absl::StrCat(options.port)},
                                     {"@JOBS@", absl::StrCat(jobs)},
                                     {"@PORTS@", absl::StrCat(ports)},
                                     {"@SERVERS@", absl::StrCat(servers.count())},
                                     {"@WORKERS@", absl::StrCat(workers)},
                                     {"@CALLED@", absl::StrCat(called)},
                                     {"@JOB@", ShellWords(words)},
                                     {"@LOGS@", ShellWord(options.log_directory)},
                                     {"@REPORT@", report},
                                     {"@PROGRAMS@", ShellWord(options.programs)},
                                     {"@SECURITY@", SecurityFlags(FilesOf(job.security()))}});
}

}  // namespace tessera

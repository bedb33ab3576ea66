#include "server/monitor/member_metrics.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

constexpr absl::string_view kMemberStates[] = {"waiting", "training", "evaluating", "left", "lost"};

bool IsHere(const v1::MemberStatus& member) {
  return member.state() != "left" && member.state() != "lost";
}

// Sums over all members that ever had one rank: only together do these never fall.
struct RankSums {
  uint64_t examples = 0;
  v1::Phases phases;
};

// Seconds as a counter may have them: what a worker tells of itself may be any number.
double Seconds(double value) { return value > 0 ? value : 0; }

// Adds the phases of one worker to the sum of its rank.
void Add(const v1::Phases& phases, v1::Phases* sum) {
  sum->set_compute_seconds(sum->compute_seconds() + Seconds(phases.compute_seconds()));
  sum->set_pull_seconds(sum->pull_seconds() + Seconds(phases.pull_seconds()));
  sum->set_push_seconds(sum->push_seconds() + Seconds(phases.push_seconds()));
  sum->set_wait_seconds(sum->wait_seconds() + Seconds(phases.wait_seconds()));
  sum->set_evaluate_seconds(sum->evaluate_seconds() + Seconds(phases.evaluate_seconds()));
}

// Adds the counters of a rank, which go on when another worker takes the rank over.
void AddSums(const std::string& rank, const RankSums& sums, MetricSet* set) {
  set->Counter("tessera_member_examples_total",
               "Rows that workers of this rank have trained on. Falls when the job goes back to a "
               "checkpoint.",
               sums.examples, {{"rank", rank}});
  const auto seconds = [&](absl::string_view phase, double value) {
    set->Counter("tessera_member_phase_seconds_total",
                 "Seconds that workers of this rank computed, pulled, pushed, waited for others "
                 "or evaluated, until their last minibatch ended.",
                 value, {{"rank", rank}, {"phase", phase}});
  };
  seconds("compute", sums.phases.compute_seconds());
  seconds("pull", sums.phases.pull_seconds());
  seconds("push", sums.phases.push_seconds());
  seconds("wait", sums.phases.wait_seconds());
  seconds("evaluate", sums.phases.evaluate_seconds());
}

// Adds the gauges of a worker that is here; a rank has at most one.
void AddMember(const v1::MemberStatus& member, MetricSet* set) {
  const std::string rank = absl::StrCat(member.rank());
  const auto gauge = [&](absl::string_view name, absl::string_view help, double value) {
    set->Gauge(name, help, value, {{"rank", rank}});
  };
  const v1::Progress& progress = member.progress();
  gauge("tessera_member_lease_age_seconds",
        "Seconds since the worker renewed its lease; at tessera_job_lease_timeout_seconds it is "
        "lost.",
        member.lease_age_seconds());
  gauge("tessera_member_progress_age_seconds", "Seconds since the worker's step last moved.",
        member.progress_age_seconds());
  gauge("tessera_member_step", "Minibatches behind the worker, those before it joined included.",
        progress.step());
  gauge("tessera_member_exchange", "The worker's last push with the pull after it.",
        progress.exchange());
  gauge("tessera_member_examples_per_second",
        "Rows that the worker trains on per second, as of late.", member.examples_per_second());
  if (progress.has_train_loss()) {
    gauge("tessera_member_train_loss", "Loss of the worker's last minibatch that is known.",
          progress.train_loss());
  }
  if (progress.steps_per_second() > 0) {
    gauge("tessera_member_steps_per_second", "Minibatches per second of computing, as of late.",
          progress.steps_per_second());
  }
  if (progress.batch_rows() > 0) {
    gauge("tessera_member_batch_rows",
          "Rows of each of the worker's minibatches, where rows are dealt by speed.",
          progress.batch_rows());
  }
  if (member.step_budget() > 0) {
    gauge("tessera_member_step_budget",
          "Minibatches until its next exchange, where slower workers are given fewer.",
          member.step_budget());
  }
  if (member.part() > 0) {
    gauge("tessera_member_part_ratio",
          "Share of the hidden neurons, 0 to 1, where parts go by speed.", member.part());
  }
}

}  // namespace

void AddMemberMetrics(const v1::JobStatus& status, MetricSet* set) {
  // Only the coordinator's status has members.
  if (status.job().empty()) return;
  for (const absl::string_view state : kMemberStates) {
    set->Gauge("tessera_members",
               "Workers by state; those that left or were lost are all that ever did.",
               std::count_if(status.members().begin(), status.members().end(),
                             [&](const auto& member) { return member.state() == state; }),
               {{"state", state}});
  }
  std::map<uint32_t, RankSums> by_rank;
  for (const v1::MemberStatus& member : status.members()) {
    RankSums& sums = by_rank[member.rank()];
    sums.examples += member.progress().examples();
    Add(member.progress().phases(), &sums.phases);
    if (IsHere(member)) AddMember(member, set);
  }
  for (const auto& [rank, sums] : by_rank) AddSums(absl::StrCat(rank), sums, set);
}

}  // namespace tessera

#include "server/control/status_fields.h"

namespace tessera {
namespace {

using Section = StatusField::Section;
using Metric = StatusField::Metric;
using Place = StatusField::Words::Place;
using Value = std::optional<StatusField::Value>;
using v1::JobStatus;

Value CountValue(uint64_t count) { return StatusField::Value(count); }
Value NumberValue(double number) { return StatusField::Value(number); }

constexpr StatusField kFields[] = {
    {Section::kHeadline, "wall_seconds", Metric::kCounter, "tessera_job_wall_seconds_total",
     "Seconds since server 0 was first started.",
     [](const JobStatus& status) { return NumberValue(status.wall_seconds()); }},
    {Section::kHeadline, "train_seconds", Metric::kCounter, "tessera_job_train_seconds_total",
     "Seconds of training, evaluations excluded.",
     [](const JobStatus& status) { return NumberValue(status.train_seconds()); }},
    {Section::kHeadline, "steps", Metric::kGauge, "tessera_job_step",
     "Minibatches behind the worker that has done most.",
     [](const JobStatus& status) { return CountValue(status.step()); }},
    {Section::kHeadline, "examples", Metric::kCounter, "tessera_job_examples_total",
     "Rows that all workers have trained on. Falls when the job goes back to a checkpoint.",
     [](const JobStatus& status) { return CountValue(status.examples()); }},
    {Section::kMembers, "joined", Metric::kCounter, "tessera_job_members_joined_total",
     "Workers that have ever taken part. Falls when the job goes back to a checkpoint, until they "
     "have joined again.",
     [](const JobStatus& status) { return CountValue(status.members_joined()); }},
    {Section::kMembers, "lost", Metric::kCounter, "tessera_job_members_lost_total",
     "Of these, workers that were lost.",
     [](const JobStatus& status) { return CountValue(status.members_lost()); }},
    {Section::kMembers, "partial_pushes", Metric::kCounter, "tessera_job_partial_pushes_total",
     "Pushes that a death cut off after some servers had counted them.",
     [](const JobStatus& status) { return CountValue(status.partial_pushes()); }},
    {Section::kRest, "planned_steps", Metric::kGauge, "tessera_job_planned_steps",
     "Minibatches per worker at which training ends.",
     [](const JobStatus& status) {
       return status.steps_planned() > 0 ? CountValue(status.steps_planned()) : std::nullopt;
     }},
    {Section::kRest,
     "refused_pushes",
     Metric::kNone,
     nullptr,
     nullptr,
     [](const JobStatus& status) { return CountValue(status.refused_pushes()); },
     {Place::kLine, "refused pushes", "refused pushes"}},
    {Section::kRest,
     "residuals_lost",
     Metric::kCounter,
     "tessera_job_residuals_lost_total",
     "Workers that are gone with what their codec had held back.",
     [](const JobStatus& status) {
       return status.has_residuals_lost() ? CountValue(status.residuals_lost()) : std::nullopt;
     },
     {Place::kLine, "residuals lost", "residuals lost"}},
    {Section::kRest, "parameter_examples", Metric::kCounter, "tessera_job_parameter_examples_total",
     "Rows whose updates are in the parameters, on the server that is furthest behind. Falls when "
     "the job goes back to a checkpoint.",
     [](const JobStatus& status) { return CountValue(status.parameter_examples()); }},
    {Section::kRest, "generation", Metric::kGauge, "tessera_job_plan_generation",
     "How often the plan of members has changed.",
     [](const JobStatus& status) { return CountValue(status.generation()); }},
    {Section::kNone, nullptr, Metric::kGauge, "tessera_job_round",
     "Updates that all members were in, or rounds.",
     [](const JobStatus& status) {
       return status.free_running() ? std::nullopt : CountValue(status.round());
     }},
    {Section::kNone, nullptr, Metric::kGauge, "tessera_job_epoch",
     "Passes over the training rows, with fractions.",
     [](const JobStatus& status) { return NumberValue(status.epoch()); }},
    {Section::kNone, nullptr, Metric::kGauge, "tessera_job_examples_per_second",
     "Rows trained on per second, as of late, by all workers.",
     [](const JobStatus& status) { return NumberValue(status.examples_per_second()); }},
    {Section::kNone, nullptr, Metric::kGauge, "tessera_job_learning_rate_factor",
     "What train.schedule multiplies the learning rate by now.",
     [](const JobStatus& status) {
       return status.has_rate_factor() ? NumberValue(status.rate_factor()) : std::nullopt;
     }},
    {Section::kNone,
     nullptr,
     Metric::kGauge,
     "tessera_job_parked_pulls",
     "Pulls that wait, over all servers.",
     [](const JobStatus& status) { return CountValue(status.parked_pulls()); },
     {Place::kPauses, "pull waits", "pulls wait"}},
    {Section::kNone,
     nullptr,
     Metric::kGauge,
     "tessera_job_resting_workers",
     "Workers at an evaluation or at their end, for whom no server waits.",
     [](const JobStatus& status) { return CountValue(status.resting()); },
     {Place::kPauses, "worker rests", "workers rest"}},
    {Section::kNone, nullptr, Metric::kGauge, "tessera_job_lease_timeout_seconds",
     "Silence after which a process counts as lost.",
     [](const JobStatus& status) { return NumberValue(status.lease_timeout_seconds()); }},
};

}  // namespace

absl::Span<const StatusField> StatusFields() { return kFields; }

}  // namespace tessera

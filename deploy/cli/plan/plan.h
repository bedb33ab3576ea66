// What each method would move and take with a job's model, on given machines.
#ifndef TESSERA_DEPLOY_CLI_PLAN_PLAN_H_
#define TESSERA_DEPLOY_CLI_PLAN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/job_reader.h"
#include "deploy/cli/plan/exchange_time.h"
#include "deploy/cli/plan/traffic.h"
#include "proto/job.pb.h"

namespace tessera {

struct PlanQuestion {
  std::string job_path;
  // "a.b=v", as given by --set.
  std::vector<std::string> overrides;
  // The number of servers; absent: the job's own.
  std::optional<int> servers;
  // The local steps of all methods that have them. Absent: the job's own number, and the defaults of the other
  // methods.
  std::optional<int> local_steps;
  // The part of the time in which workers are to compute, 0 to 1; absent: nobody asks.
  std::optional<double> utilisation;
  // The machines; their workers take the place of the job's.
  Machines machines;
  // The seconds of one minibatch on the whole model; and those that follow from one on a subnet.
  double step_seconds = 0;
  double step_seconds_of_subnets = 0;
  // The inputs of an average row that count; 0: all; nullopt: not known.
  std::optional<double> row_entries = 0;
  // The number of training rows; 0: not known.
  int64_t train_rows = 0;
};

// A way to cut a model in halves and to deal them to workers.
struct HalvesChoice {
  // The linear layer in front of which the model is cut.
  std::string cut;
  int64_t linear_workers = 1;
  // Rows that all workers would train on together; 0: nothing takes time.
  double rows_per_second = 0;
};

// The ways that a job leaves open (Recipe::open_keys), those first with which most rows would be trained a second; of
// ways that are alike, first the one whose cut is furthest in front. Its own way alone where it leaves none. Empty: its
// layers are not dealt to workers.
std::vector<HalvesChoice> RankHalves(const PlanQuestion& question, const v1::Job& job);

// What is planned where workers have halves of the layers.
struct PlannedHalves {
  int64_t linear_workers = 1;
  // The linear layer in front of which the model is cut.
  std::string cut;
  // Whether the job left either of them open, and the best was taken.
  bool is_chosen = false;
  // The number of linear workers with which most rows are trained a second, and how many these are; any number
  // where nothing takes time.
  int64_t best_linear_workers = 1;
  double best_rows_per_second = 0;
  // The best of all cuts, with the best number of linear workers for it; the job's own where no other is better.
  HalvesChoice best;
  // Bytes that pass the link of one worker, both ways, in a step; the mean of the linear ones. Where servers of a half
  // are beside its workers, what they and the server there pass each other is left out.
  double front_bytes = 0;
  double linear_bytes = 0;
  // The last servers, which have the linear layers alone and run beside the linear workers; 0: there are none such.
  int64_t linear_servers = 0;
  // By the paper's two models (deploy/cli/plan/stanza_models.h).
  double paper_step_seconds = 0;
  double paper_server_step_seconds = 0;
  int64_t paper_linear_workers = 1;
};

struct PlannedMethod {
  std::string name;
  // Whether this is the job's own method; the others have their defaults.
  bool is_own = false;
  // Why the job cannot be trained so, where this is not empty: nothing below means anything then.
  std::string refused;
  // Why time, and what is per step, is not known, where this is not empty.
  std::string unknown;
  // Minibatches between exchanges; 0: there is one exchange in the whole job.
  int64_t local_steps = 1;
  int64_t servers = 1;
  // Whether a server is beside every worker, so that what a worker pulls leaves no machine.
  bool between_workers = false;
  // The traffic of one worker and one exchange: the mean over workers, where these have halves.
  TrafficForecast push, pull;
  std::optional<PlannedHalves> halves;
  // Bytes that pass a worker's link, both ways, for one minibatch; the mean over workers, where these have halves.
  double step_bytes = 0;
  // The seconds of one minibatch, with its part of the exchange.
  double step_seconds = 0;
  double computing = 0;
  // Where the question has a utilisation: the least local_steps that reach it; 0: none do, or the method has none.
  int64_t utilising_steps = 0;
  Limit limit = Limit::kComputing;
  // Rows that all workers train on together; 0: a step takes no time.
  double rows_per_second = 0;
};

// The job with the question's machines in place of its own.
JobReading ReadPlannedJob(const PlanQuestion& question, const JobOptions& options);

// All methods, in the order of the schema. The job has been read once without errors.
std::vector<PlannedMethod> PlanMethods(const PlanQuestion& question);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_PLAN_H_

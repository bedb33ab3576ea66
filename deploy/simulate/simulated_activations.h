// Activations and their gradient on the simulated network: what worker/rpc's ends of worker/activations are in a
// real job, around the same queue.
//
// A batch that reaches a worker that takes none, or does not know the sender yet, is sent again after a pause. One
// that crashed says nothing: its senders wait until the coordinator's list has another one for them.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_ACTIVATIONS_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_ACTIVATIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_world.h"
#include "deploy/simulate/worker_pace.h"
#include "proto/peers.pb.h"
#include "worker/activations/activation_exchange.h"
#include "worker/activations/activation_queue.h"
#include "worker/activations/layer_workers.h"

namespace tessera {

class SimulatedInbox;

// Whom a batch reaches; all workers' of a simulation, and lives as long.
using SimulatedInboxes = std::map<MemberId, SimulatedInbox*>;

// The address of a machine on which a linear worker listens, as the coordinator tells it to the others.
std::string SimulatedAddress(int machine);

// The sender's end. Both ends live as long as the simulation, as messages refer to them.
class SimulatedSender final : public ActivationSender {
 public:
  struct Options {
    MemberId member;
    int machine = 0;
    std::string job_digest;
    LayerSplit split;
    // Called where it is not known yet who takes part.
    std::function<void()> on_no_plan = [] {};
  };

  // All outlive it.
  SimulatedSender(Options options, SimulatedWorld* world, SimulatedProcess* process,
                  const SimulatedInboxes* inboxes)
      : options_(std::move(options)), world_(*world), process_(*process), inboxes_(*inboxes) {}

  void SetWorkers(const v1::WorkerList& list);

  absl::StatusOr<ActivationAnswer> Exchange(const ActivationBatch& batch) override;
  int64_t payload_bytes() const override { return payload_bytes_; }

  // --- the receiver's answers, called when they are given; nullptr or an error: it took none ---
  void Answered(int machine, uint64_t call, std::shared_ptr<const GradientAnswer> answer);
  void Refused(int machine, uint64_t call, absl::Status why);

 private:
  // The worker that the batch goes to; nullopt: there is none, or it is not known yet who takes part.
  std::optional<LayerWorker> Target() const;
  bool Wait();
  void Send();
  // Called when the batch is at its receiver.
  void Arrive(uint64_t call);
  int64_t label_bytes() const;
  int64_t activation_bytes() const;

  const Options options_;
  SimulatedWorld& world_;
  SimulatedProcess& process_;
  const SimulatedInboxes& inboxes_;
  LayerWorkers workers_;
  int64_t payload_bytes_ = 0;

  // The exchange under way: what is still of an earlier call is of no use.
  const ActivationBatch* batch_ = nullptr;
  uint64_t call_ = 0;
  uint64_t ticket_ = 0;
  std::optional<LayerWorker> target_;
  bool has_answer_ = false;
  std::shared_ptr<const GradientAnswer> answer_;
  absl::Status refused_;
};

class SimulatedInbox final : public ActivationReceiver {
 public:
  struct Options {
    ActivationQueue::Options queue;
    int machine = 0;
    // False where nobody looks at what is sent.
    bool moves_values = true;
    // What the sender's option of this name is for, on the receiving side.
    std::function<void()> on_no_plan = [] {};
  };

  // All outlive it. `work` takes the time of each batch.
  SimulatedInbox(Options options, SimulatedWorld* world, SimulatedProcess* process, PacedWork* work)
      : options_(std::move(options)),
        queue_(options_.queue),
        world_(*world),
        process_(*process),
        work_(*work) {}

  void SetWorkers(const v1::WorkerList& list);
  // Takes a batch that has come.
  void Take(SimulatedSender* sender, uint64_t call, const ComingBatch& facts,
            const ActivationBatch& batch);

  absl::StatusOr<const Batch*> Next(uint64_t step, Generation plan) override;
  void Answer(double loss, absl::Span<const float> gradient) override;

 private:
  absl::StatusOr<std::unique_ptr<ActivationQueue::Waiting>> Unpack(const ComingBatch& facts,
                                                                   const ActivationBatch& batch,
                                                                   Answered answered) const;
  void Wake();

  const Options options_;
  ActivationQueue queue_;
  SimulatedWorld& world_;
  SimulatedProcess& process_;
  PacedWork& work_;
  bool is_waiting_ = false;
  bool is_over_ = false;
  uint64_t ticket_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_ACTIVATIONS_H_

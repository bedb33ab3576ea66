// What a simulated worker does with checkpoints: as worker/train, WorkerSaver and WorkerProcess.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_worker.h"

namespace tessera {
namespace {

constexpr absl::Duration kWriteMost = absl::Milliseconds(40);
constexpr absl::Duration kSlowWriteMost = absl::Milliseconds(1500);
// As WorkerSaver and WorkerProcess have them.
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);
constexpr absl::Duration kPausePoll = absl::Milliseconds(50);

}  // namespace

// As ParameterClientGrpc::Collect.
void SimWorker::Hear(CheckpointMark mark) {
  if (mark.number > told_.number) told_ = mark;
}

void SimWorker::SaveIfAsked(v1::Progress progress, bool evaluation_due,
                            std::function<void()> then) {
  if (options_.folder == nullptr) return then();
  CheckpointMark mark = told_;
  if (options_.mutation == Mutation::kSavesLate && rank_ == Rank(0)) {
    mark = std::exchange(late_, told_);
  }
  if (mark.number <= checkpoint_number_) return then();
  checkpoint_number_ = mark.number;
  const auto save = [this, mark, progress, evaluation_due, then = std::move(then)] {
    Save(mark, progress, evaluation_due, [] {});
    then();
  };
  if (!saves_) return save();
  saved_ = save;  // As AwaitIdle.
}

// As WorkerSaver::Save and Run.
void SimWorker::Save(CheckpointMark mark, v1::Progress progress, bool evaluation_due,
                     std::function<void()> told) {
  saves_ = true;
  SimFolder::File file;
  file.listed.name = WorkerFileName(rank_.value());
  file.progress = progress;
  file.evaluation_due = evaluation_due;
  KeepHeld(&file);
  v1::SavedRequest request;
  request.set_number(mark.number);
  *request.mutable_progress() = std::move(progress);
  request.set_evaluation_due(evaluation_due);
  Dice& dice = network_->dice();
  const absl::Duration longest = dice.Chance(0.1) ? kSlowWriteMost : kWriteMost;
  const bool fails = options_.forges && dice.Chance(0.02);
  network_->After(node_, dice.Between(absl::ZeroDuration(), longest),
                  [this, mark, file, request, fails, told = std::move(told)]() mutable {
                    if (options_.mutation == Mutation::kSavesHeldLate) KeepHeld(&file);
                    absl::StatusOr<CheckpointFile> written = absl::UnavailableError("disk error");
                    if (!fails) written = options_.folder->Write(mark.folder_step, file);
                    if (written.ok()) {
                      request.mutable_file()->set_name(written->name);
                      request.mutable_file()->set_bytes(static_cast<uint64_t>(written->bytes));
                      request.mutable_file()->set_sum(written->sum);
                    } else {
                      request.set_error(std::string(written.status().message()));
                    }
                    TellSaved(request, [this, told = std::move(told)](const v1::SavedReply&) {
                      saves_ = false;
                      told();
                      if (saved_) std::exchange(saved_, nullptr)();
                    });
                  });
}

// What is refused is said no more: the files are nobody's.
void SimWorker::TellSaved(v1::SavedRequest request,
                          std::function<void(const v1::SavedReply&)> then) {
  request.set_member(member_.value());
  Retry<v1::SavedReply>(
      [this, request](auto done) {
        coordinator_->Ask<v1::SavedReply>(
            node_, [request](Coordinator& c, absl::Time now) { return c.Saved(request, now); },
            done);
      },
      [then = std::move(then)](absl::StatusOr<v1::SavedReply> reply) {
        then(reply.ok() ? *reply : v1::SavedReply());
      });
}

void SimWorker::SaveLast(uint64_t saved) {
  if (options_.folder == nullptr) return Leave();
  doing_ = "waiting for the last checkpoint";
  if (saves_) {
    saved_ = [this, saved] { SaveLast(saved); };
    return;
  }
  v1::SavedRequest question;
  question.set_writes_again(true);
  TellSaved(question, [this, saved](const v1::SavedReply& reply) {
    const bool saves = reply.has_mark() && reply.mark().number() > saved;
    const auto again = [this, saved = saves ? reply.mark().number() : saved] {
      network_->After(node_, kAskAgain, [this, saved] { SaveLast(saved); });
    };
    if (saves) {
      // As it was before the evaluation.
      return Save({reply.mark().number(), reply.mark().folder_step()}, evaluated_, evaluation_due_,
                  again);
    }
    if (!reply.wait() && !reply.has_mark()) return Leave();
    again();
  });
}

// As WorkerSaver::Load, of what there is to compare.
void SimWorker::Resume(const v1::JoinReply& reply) {
  evaluates_at_start_ = reply.resume().evaluation_due() ? 1 : 0;
  const absl::StatusOr<const SimFolder::Whole*> found =
      options_.folder->Open(reply.resume().step());
  if (!found.ok()) return CheckIsRemoved(found.status().message());
  const auto file = (*found)->files.find(WorkerFileName(reply.rank()));
  std::optional<Checker::SavedWorker> saved;
  if ((*found)->manifest.FindFile(WorkerFileName(reply.rank())) != nullptr) {
    resumed_ = file->second;
    const v1::Progress& progress = file->second.progress;
    saved = {Rank(reply.rank()), Exchange(progress.exchange()), progress.step()};
    if (!file->second.evaluation_due) evaluates_at_start_ = 0;
  }
  checker_->OnResumed(member_, exchange_, step_, saved);
}

// As WorkerProcess::MayRejoin.
void SimWorker::AskWhetherToRejoin(RejoinQuestion question, std::string why) {
  v1::RenewRequest request;
  request.set_member(member_.value());
  *request.mutable_progress() = ProgressText();
  request.set_drain_seen(drain_exchange_);
  coordinator_->Ask<v1::RenewReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Renew(request, now); },
      [this, question, why](std::optional<absl::StatusOr<v1::RenewReply>> reply) mutable {
        using Answer = RejoinQuestion::Answer;
        const bool may_return = !reply.has_value() && coordinator_->is_kept();
        const absl::StatusOr<v1::RenewReply> word =
            reply.has_value() ? *std::move(reply) : absl::UnavailableError("lost on its way");
        const Answer answer = question.OnWord(word, may_return, network_->now());
        if (answer == Answer::kEnd) return End(why);
        if (answer == Answer::kJoinAgain) return Rejoin();
        network_->After(node_, kPausePoll,
                        [this, question, why] { AskWhetherToRejoin(question, why); });
      });
}

void SimWorker::Rejoin() {
  network_->Kill(node_);
  options_.on_rejoin(static_cast<uint32_t>(rank_.value()));
}

}  // namespace tessera

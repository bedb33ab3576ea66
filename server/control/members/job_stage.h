// How far a job is, from the first server that attaches to the last one that is told that the job has ended.
//
//   gathering  servers and workers that the job begins with have yet to come; again after it went back to a checkpoint
//   running    the first plan is out
//   paused     a server is lost, and the job waits for it in order to go back to a checkpoint
//
// Three things happen besides, in whichever stage the job is: training ends, the job fails, servers are told to close.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_JOB_STAGE_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_JOB_STAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "proto/coordinator_state.pb.h"

namespace tessera {

class JobStage {
 public:
  bool started() const { return stage_ != Stage::kGathering; }
  bool paused() const { return stage_ == Stage::kPaused; }
  // Nobody makes a step any more; the last evaluation has ended.
  bool training_over() const { return training_over_; }
  // Servers were told to close.
  bool closed() const { return closed_.has_value(); }
  // What servers were told of the job's failure when they were told to close; empty: it has not failed.
  std::string closed_failure() const { return closed_.value_or(""); }
  // Why the job cannot go on; nullopt: it can. The coordinator ends the job because of it.
  const std::optional<std::string>& failure() const { return failure_; }

  void Start() { Enter(Stage::kRunning); }
  void Pause() { Enter(Stage::kPaused); }
  // All servers that the job waited for are back, with all that they had.
  void Resume() { Enter(Stage::kRunning); }
  void GoBack() { Enter(Stage::kGathering); }
  void EndTraining() {
    training_over_ = true;
    ++changes_;
  }
  void Close(std::string failure) {
    closed_ = std::move(failure);
    ++changes_;
  }
  // The first reason stays.
  void Fail(std::string why) {
    if (failure_) return;
    failure_ = std::move(why);
    ++changes_;
  }

  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const;
  void Load(const v1::MembershipState& state);

 private:
  enum class Stage { kGathering, kRunning, kPaused };

  void Enter(Stage stage) {
    stage_ = stage;
    ++changes_;
  }

  Stage stage_ = Stage::kGathering;
  bool training_over_ = false;
  std::optional<std::string> closed_;
  std::optional<std::string> failure_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_JOB_STAGE_H_

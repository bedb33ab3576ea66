// What the servers' answers to one exchange come to.
#ifndef TESSERA_WORKER_EXCHANGE_EXCHANGE_ANSWERS_H_
#define TESSERA_WORKER_EXCHANGE_EXCHANGE_ANSWERS_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/keyset/subnet.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// One server's answer, beside its values.
struct ServerAnswer {
  // What was asked for came, and no word in its place.
  bool has_values() const { return !recut.has_value() && !is_whole && !needs_all; }

  // The version of the values.
  Version version;
  // See ExchangeResult.
  uint64_t job_examples = 0;
  Generation plan;
  uint64_t cores = 0;
  std::optional<SubnetPlace> recut;
  bool is_whole = false;
  bool needs_all = false;
  uint64_t checkpoint_number = 0;
  uint64_t checkpoint_step = 0;
};

// One thread.
class ExchangeAnswers {
 public:
  // An exchange begins for whoever waits for it.
  void Begin(absl::Time now) {
    result_ = ExchangeResult();
    begin_ = now;
    pushed_ = now;
    first_value_ = absl::InfiniteFuture();
  }
  // Whoever began it waits for it from now on: times count from here.
  void WaitFrom(absl::Time now) {
    begin_ = now;
    pushed_ = std::max(pushed_, now);
  }
  // A server has acknowledged the push.
  void OnPushed(absl::Time time) { pushed_ = std::max(pushed_, time); }
  // A server has answered, from `first_byte` on.
  void OnAnswer(const ServerAnswer& answer, absl::Time first_byte) {
    first_value_ = std::min(first_value_, first_byte);
    // Where servers differ, the next pull goes by one of them and finds the others agreed.
    if (answer.recut.has_value()) result_.recut = answer.recut;
    // One that lost all its members on the way may not have heard of it.
    result_.is_whole = result_.is_whole || answer.is_whole;
    result_.needs_all = result_.needs_all || answer.needs_all;
    result_.job_examples = std::max(result_.job_examples, answer.job_examples);
    result_.plan = std::max(result_.plan, answer.plan);
    result_.cores = std::max(result_.cores, answer.cores);
    if (answer.checkpoint_number > result_.checkpoint_number) {
      result_.checkpoint_number = answer.checkpoint_number;
      result_.checkpoint_step = answer.checkpoint_step;
    }
  }
  // No server has answered otherwise than with the values that were asked for.
  bool have_values() const {
    return !result_.needs_all && !result_.recut.has_value() && !result_.is_whole;
  }
  // What the exchange has brought, which ends now.
  ExchangeResult Result(absl::Time now) const {
    const absl::Time first_value = std::min(now, std::max(pushed_, first_value_));
    ExchangeResult result = result_;
    result.push_seconds = absl::ToDoubleSeconds(pushed_ - begin_);
    result.wait_seconds = absl::ToDoubleSeconds(first_value - pushed_);
    result.pull_seconds = absl::ToDoubleSeconds(now - first_value);
    return result;
  }

 private:
  ExchangeResult result_;  // without times
  absl::Time begin_;
  absl::Time pushed_;
  absl::Time first_value_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_EXCHANGE_ANSWERS_H_

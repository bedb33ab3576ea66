#include "worker/activations/activation_queue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Bytes of a class, or of a value.
constexpr uint64_t kWord = 4;

uint64_t BytesOf(const ComingBatch& batch, const ActivationQueue::Options& options) {
  const auto kinds = static_cast<uint64_t>(batch.has_classes ? 1 : options.outputs);
  return batch.rows * (kinds + static_cast<uint64_t>(options.features)) * kWord;
}

std::string Where(const ComingBatch& batch) {
  return absl::StrCat("activations from member ", batch.member.value(), " step ", batch.step);
}

// Copies pieces one after the other.
class PayloadReader {
 public:
  explicit PayloadReader(const Payload& payload) : pieces_(payload.pieces()) {}
  void Read(void* out, int64_t bytes) {
    char* to = static_cast<char*>(out);
    while (bytes > 0) {
      const Payload::Piece& piece = pieces_[piece_];
      const int64_t run = std::min(bytes, piece.size - offset_);
      std::memcpy(to, piece.data + offset_, static_cast<size_t>(run));
      to += run;
      bytes -= run;
      offset_ += run;
      if (offset_ < piece.size) continue;
      ++piece_;
      offset_ = 0;
    }
  }

 private:
  const std::vector<Payload::Piece>& pieces_;
  size_t piece_ = 0;
  int64_t offset_ = 0;
};

// The first of `values` that is not finite; its size: there is none.
size_t FirstBad(absl::Span<const float> values) {
  uint32_t bad = 0;
  for (const float& value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    // All values are looked at without a branch, which compilers make vectors of.
    bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
  }
  if (bad == 0) return values.size();
  return static_cast<size_t>(
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); }) -
      values.begin());
}

// Its gradient would spoil those of all others that are added to it.
absl::Status CheckFinite(const ComingBatch& batch, absl::Span<const float> values,
                         const char* what) {
  const size_t bad = FirstBad(values);
  if (bad == values.size()) return absl::OkStatus();
  const size_t in_row = values.size() / batch.rows;
  return absl::InvalidArgumentError(
      absl::StrCat(Where(batch), ": ", what, " ", bad % in_row, " of row ", bad / in_row, " is ",
                   values[bad], ", want a finite number; a lower learning rate may help"));
}

std::shared_ptr<const GradientAnswer> TooLate() {
  auto answer = std::make_shared<GradientAnswer>();
  answer->too_late = true;
  return answer;
}

}  // namespace

void ActivationQueue::SetWorkers(const v1::WorkerList& list) {
  // Lists may overtake each other on their way.
  if (Generation(list.generation()) < workers_.generation()) return;
  workers_ = LayerWorkers(list, options_.split);
  const auto forget_others = [this](auto* by_member) {
    for (auto it = by_member->begin(); it != by_member->end();) {
      // What members that have gone sent last is of no use.
      it = workers_.Has(it->first) ? std::next(it) : by_member->erase(it);
    }
  };
  forget_others(&adopted_);
  forget_others(&last_);
}

absl::Status ActivationQueue::Check(const ComingBatch& batch) const {
  if (batch.rows < 1 || batch.rows > static_cast<uint64_t>(options_.rows_max)) {
    return absl::InvalidArgumentError(absl::StrCat(Where(batch), ": rows are ", batch.rows,
                                                   ", want between 1 and ", options_.rows_max));
  }
  if (batch.has_classes != options_.has_classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(batch), ": labels are ", batch.has_classes ? "classes" : "targets", ", want ",
        options_.has_classes ? "classes" : "targets", "; the workers' data differ"));
  }
  if (batch.payload_bytes != BytesOf(batch, options_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(batch), ": payload is ", batch.payload_bytes, " bytes, want ",
        BytesOf(batch, options_), " (", batch.rows, " rows of ", options_.features, " values and ",
        batch.has_classes ? "a class" : absl::StrCat(options_.outputs, " targets"), ")"));
  }
  if (workers_.RankOfFront(batch.member)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Where(batch), ": no member with data that this worker knows of (generation ",
                   workers_.generation().value(), ")"));
}

absl::StatusOr<std::unique_ptr<ActivationQueue::Waiting>> ActivationQueue::Unpack(
    const Options& options, const ComingBatch& batch, const Payload& payload, Answered answered) {
  if (static_cast<uint64_t>(payload.size()) != batch.payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(Where(batch), ": payload ended after ",
                                                   payload.size(), " of ", batch.payload_bytes,
                                                   " bytes"));
  }
  auto waiting = std::make_unique<Waiting>();
  waiting->facts = batch;
  waiting->answered = std::move(answered);
  ActivationReceiver::Batch& made = waiting->batch;
  made.step = batch.step;
  made.rows = static_cast<int64_t>(batch.rows);
  PayloadReader reader(payload);
  // Values are stored with targets behind them, as one array.
  const int64_t features = made.rows * options.features;
  const int64_t targets = batch.has_classes ? 0 : made.rows * options.outputs;
  waiting->values.resize(static_cast<size_t>(features + targets));
  if (batch.has_classes) {
    waiting->classes.resize(batch.rows);
    reader.Read(waiting->classes.data(), made.rows * static_cast<int64_t>(kWord));
    // A single output has two classes.
    // A class out of range would be an index beyond the outputs.
    const int64_t classes = std::max<int64_t>(2, options.outputs);
    for (size_t row = 0; row < waiting->classes.size(); ++row) {
      if (waiting->classes[row] >= 0 && waiting->classes[row] < classes) continue;
      return absl::InvalidArgumentError(absl::StrCat(Where(batch), ": class of row ", row, " is ",
                                                     waiting->classes[row], ", want between 0 and ",
                                                     classes - 1));
    }
    made.classes = waiting->classes;
  } else {
    reader.Read(waiting->values.data() + features, targets * static_cast<int64_t>(kWord));
    made.targets = absl::MakeConstSpan(waiting->values).subspan(features);
    TESSERA_RETURN_IF_ERROR(CheckFinite(batch, made.targets, "target"));
  }
  reader.Read(waiting->values.data(), features * static_cast<int64_t>(kWord));
  made.activations = absl::MakeConstSpan(waiting->values).first(features);
  TESSERA_RETURN_IF_ERROR(CheckFinite(batch, made.activations, "activation"));
  return waiting;
}

DueAnswer ActivationQueue::Deliver(std::unique_ptr<Waiting> waiting) {
  const MemberId member = waiting->facts.member;
  const uint64_t step = waiting->facts.step;
  // From its first batch on this worker waits for the member's batches.
  adopted_.emplace(member, step);
  const auto last = last_.find(member);
  // Asked again, as an answer was lost: it is the same one, and nothing is computed twice.
  if (last != last_.end() && last->second.step == step) {
    return {std::move(waiting->answered), last->second.answer};
  }
  // A step is over for this worker once it has gone on without the sender.
  const bool is_past = step_ && (step < *step_ || (step == *step_ && is_over_));
  if (is_past) return {std::move(waiting->answered), TooLate()};
  if (!is_answered_ && current_->facts.member == member && current_->facts.step == step) {
    // It is being computed: the answer goes to whoever asked last.
    // The call that asked before gets nothing, and is ended.
    return {std::exchange(current_->answered, std::move(waiting->answered)), nullptr};
  }
  std::unique_ptr<Waiting>& place = waiting_[member];
  // A repeated batch takes the place of the first one.
  const std::unique_ptr<Waiting> before = std::exchange(place, std::move(waiting));
  return {before != nullptr ? std::move(before->answered) : Answered(), nullptr};
}

bool ActivationQueue::HasCome(MemberId member) const {
  const auto found = waiting_.find(member);
  return found != waiting_.end() && found->second->facts.step == *step_;
}

std::vector<LayerWorker> ActivationQueue::Expected() const {
  // Members that have sent here because their own linear worker was gone count as well.
  std::vector<LayerWorker> expected = workers_.AtHomeWith(options_.member, *step_);
  for (const auto& [member, first] : adopted_) {
    const std::optional<Rank> rank = workers_.RankOfFront(member);
    const bool is_known =
        std::any_of(expected.begin(), expected.end(),
                    [m = member](const LayerWorker& worker) { return worker.member == m; });
    // One whose first batch is for this step is taken when it comes, and not waited for.
    if (rank && !is_known && first < *step_) expected.push_back({member, *rank, "", 0});
  }
  // In the order of ranks, so that sums of gradients have the same bits in each run.
  std::sort(expected.begin(), expected.end(),
            [](const LayerWorker& a, const LayerWorker& b) { return a.rank < b.rank; });
  return expected;
}

ActivationQueue::Turn ActivationQueue::TakeFrom(MemberId member, Rank rank) {
  const auto found = waiting_.find(member);
  current_ = std::move(found->second);
  waiting_.erase(found);
  taken_.insert(member);
  current_->batch.sender = rank;
  is_answered_ = false;
  return Turn::kBatch;
}

void ActivationQueue::Begin(uint64_t step) {
  step_ = step;
  taken_.clear();
  is_over_ = false;
  for (auto it = adopted_.begin(); it != adopted_.end();) {
    const auto& [member, since] = *it;
    // A member whose own linear worker is back goes there, and is not waited for.
    const std::optional<uint64_t> left = workers_.LeftAt(member, options_.member, since, step);
    if (!left) {
      ++it;
      continue;
    }
    // Unless it has come back.
    const auto waiting = waiting_.find(member);
    const bool is_back = waiting != waiting_.end() && waiting->second->facts.step >= *left;
    if (is_back) it->second = waiting->second->facts.step;
    it = is_back ? std::next(it) : adopted_.erase(it);
  }
}

ActivationQueue::Turn ActivationQueue::Take(uint64_t step, Generation plan) {
  // Without the plan nobody knows whom to wait for.
  if (workers_.generation() < plan) return Turn::kNoPlan;
  if (step_ != step) Begin(step);
  for (const LayerWorker& sender : Expected()) {
    if (taken_.count(sender.member) > 0) continue;
    // The next one in order is waited for, even if others have come: sums depend on the order.
    return HasCome(sender.member) ? TakeFrom(sender.member, sender.rank) : Turn::kMissing;
  }
  // Those that come for the first time, as they have lost their own.
  for (const auto& [member, waiting] : waiting_) {
    const std::optional<Rank> rank = workers_.RankOfFront(member);
    if (HasCome(member) && rank) return TakeFrom(member, *rank);
  }
  // Without any worker with data the step cannot be over, unless this worker leaves.
  if (!workers_.has_front() && !leaves_) return Turn::kMissing;
  is_over_ = true;
  return Turn::kOver;
}

DueAnswer ActivationQueue::Answer(double loss, absl::Span<const float> gradient) {
  TESSERA_CHECK(!is_answered_);
  is_answered_ = true;
  auto answer = std::make_shared<GradientAnswer>();
  answer->loss = loss;
  answer->gradient.assign(gradient.begin(), gradient.end());
  // Kept until the member's next batch, in case the answer is lost.
  last_[current_->facts.member] = {current_->facts.step, answer};
  return {std::move(current_->answered), std::move(answer)};
}

std::vector<DueAnswer> ActivationQueue::TakeLate() {
  std::vector<DueAnswer> late;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    // A batch of a later step waits for its turn.
    if (it->second->facts.step > *step_) {
      ++it;
      continue;
    }
    late.push_back({std::move(it->second->answered), TooLate()});
    it = waiting_.erase(it);
  }
  return late;
}

std::vector<DueAnswer> ActivationQueue::TakeAll() {
  std::vector<DueAnswer> all;
  if (!is_answered_) all.push_back({std::exchange(current_->answered, nullptr), nullptr});
  for (auto& [member, waiting] : waiting_) all.push_back({std::move(waiting->answered), nullptr});
  waiting_.clear();
  return all;
}

std::vector<Rank> ActivationQueue::Missing() const {
  std::vector<Rank> missing;
  // Behind the end of a step nobody is missing.
  if (!step_ || is_over_) return missing;
  for (const LayerWorker& sender : Expected()) {
    if (taken_.count(sender.member) == 0 && !HasCome(sender.member)) missing.push_back(sender.rank);
  }
  return missing;
}

}  // namespace tessera

// A linear worker's queue of batches under any messages of any sender, in any order, while members come and go.
//
//   input = front(1) linear(1) (event(1) choices)*
//
// No crash; a batch counts once and is answered at most once for each time it came; what was computed is what was
// sent; a sender that does as it should still gets an answer afterwards.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_payload.h"
#include "tests/worker/activations/lists.h"
#include "worker/activations/activation_queue.h"

namespace tessera {
namespace {

constexpr int kEventsMax = 300;
constexpr int64_t kRowsMax = 3;
constexpr int64_t kFeatures = 2;
constexpr int64_t kOutputs = 3;
constexpr uint64_t kWord = 4;

class Events {
 public:
  explicit Events(FuzzInput* input)
      : in_(*input),
        split_(SplitOf(1 + static_cast<int>(in_.Below(4)), 1 + static_cast<int>(in_.Below(3)))),
        workers_(split_.front_workers + split_.linear_workers),
        rank_(split_.front_workers + in_.Below(split_.linear_workers)),
        has_classes_(in_.Bit()),
        queue_({MemberAt(rank_), split_, kRowsMax, kFeatures, kOutputs, has_classes_}) {
    queue_.SetWorkers(ListOf(split_, generation_));
  }

  void Run() {
    for (int events = 0; !in_.ended() && events < kEventsMax; ++events) One();
    AnswerHonestSenders();
  }

 private:
  void One() {
    switch (in_.Below(4)) {
      case 0:
      case 1:
        return Send();
      case 2:
        return Collect();
      default:
        return LoseSomebody();
    }
  }

  void Send() {
    ComingBatch batch;
    batch.member = MemberId(in_.Below(static_cast<uint64_t>(workers_) + 2));
    batch.step = in_.Bit() ? step_ + in_.Below(2) : in_.Count();
    batch.rows = in_.Byte() < 224 ? 1 + in_.Below(kRowsMax) : in_.Count();
    batch.has_classes = in_.Byte() < 240 ? has_classes_ : in_.Bit();
    batch.payload_bytes = in_.Byte() < 224 ? BytesOf(batch.rows, batch.has_classes) : in_.Count();
    const absl::Status status = queue_.Check(batch);
    if (!status.ok()) {
      TESSERA_CHECK(!status.message().empty());
      return;
    }
    TESSERA_CHECK(batch.rows >= 1 && batch.rows <= static_cast<uint64_t>(kRowsMax));
    std::string bytes(in_.Byte() < 224 ? batch.payload_bytes : in_.Below(256),
                      static_cast<char>(in_.Byte() & 0x3f));
    // Classes that the model has, mostly; and values that tell the batch from any other.
    const char stamp = static_cast<char>(++stamp_ & 0x3f);
    const size_t classes =
        batch.has_classes ? std::min<size_t>(bytes.size(), batch.rows * kWord) : 0;
    if (in_.Byte() < 224) {
      std::fill(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(classes), '\0');
    }
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(classes), bytes.end(), stamp);
    sent_[{batch.member, batch.step}].insert(stamp);
    Deliver(batch, bytes, 1 + in_.Byte());
  }

  void Deliver(const ComingBatch& batch, const std::string& bytes, size_t piece) {
    const auto told = std::make_shared<int>(0);
    const auto key = std::make_pair(batch.member, batch.step);
    auto unpacked = ActivationQueue::Unpack(
        queue_.options(), batch, PiecesOf(bytes, piece),
        [this, told, key](const std::shared_ptr<const GradientAnswer>& answer) {
          TESSERA_CHECK(++*told == 1);
          if (answer == nullptr) return;
          if (!answer->too_late) TESSERA_CHECK(answer == answers_.at(key));
          answered_.insert(key);
        });
    if (!unpacked.ok()) {
      TESSERA_CHECK(!unpacked.status().message().empty());
      return;
    }
    TESSERA_CHECK(bytes.size() == batch.payload_bytes);
    const ActivationReceiver::Batch& made = (*unpacked)->batch;
    TESSERA_CHECK(made.activations.size() == batch.rows * kFeatures);
    TESSERA_CHECK(made.classes.size() + made.targets.size() ==
                  batch.rows * (batch.has_classes ? 1 : kOutputs));
    for (const int32_t label : made.classes) TESSERA_CHECK(label >= 0 && label < kOutputs);
    queue_.Deliver(*std::move(unpacked)).Send();
  }

  // As a train loop, for some turns or until the step is over.
  void Collect() {
    for (uint64_t turns = in_.Below(4) + 1; turns > 0; --turns) {
      if (!Turn()) return;
    }
  }

  // False: nothing is to be done now.
  bool Turn() {
    switch (queue_.Take(step_, Generation(1))) {
      case ActivationQueue::Turn::kMissing:
      case ActivationQueue::Turn::kNoPlan:
        return false;
      case ActivationQueue::Turn::kOver:
        for (const DueAnswer& due : queue_.TakeLate()) due.Send();
        step_ += in_.Byte() < 224 ? 1 : in_.Below(8) + 1;
        return true;
      case ActivationQueue::Turn::kBatch:
        break;
    }
    const ActivationReceiver::Batch& batch = queue_.batch();
    TESSERA_CHECK(batch.step == step_);
    TESSERA_CHECK(batch.sender.value() < static_cast<uint64_t>(split_.front_workers));
    TESSERA_CHECK(told_.count(batch.sender.value()) == 0);
    const auto key = std::make_pair(MemberAt(batch.sender.value()), batch.step);
    TESSERA_CHECK(computed_.insert(key).second);
    const std::string stamped(batch.activations.size() * kWord,
                              *reinterpret_cast<const char*>(batch.activations.data()));
    TESSERA_CHECK(sent_[key].count(stamped[0]) > 0);
    TESSERA_CHECK(std::memcmp(batch.activations.data(), stamped.data(), stamped.size()) == 0);
    // Others come while it is computed.
    if (in_.Bit()) Send();
    const std::vector<float> gradient(batch.activations.begin(), batch.activations.end());
    const DueAnswer due = queue_.Answer(1.0, gradient);
    TESSERA_CHECK(due.answer->gradient.size() == gradient.size());
    answers_[key] = due.answer;
    due.Send();
    return true;
  }

  void LoseSomebody() {
    const uint64_t rank = in_.Below(static_cast<uint64_t>(workers_));
    if (rank != rank_) gone_.insert(rank);
    // Lists come in any order.
    const uint64_t generation = in_.Bit() ? ++generation_ : in_.Below(generation_ + 1);
    if (generation == generation_) {
      queue_.SetWorkers(ListOf(split_, generation, gone_));
      told_ = gone_;
    } else {
      queue_.SetWorkers(ListOf(split_, generation, {}));
    }
  }

  void AnswerHonestSenders() {
    queue_.SetWorkers(ListOf(split_, ++generation_, gone_));
    told_ = gone_;
    // Whatever was left of the steps that came before is over first.
    ++step_;
    std::set<uint64_t> asked;
    for (int rank = 0; rank < split_.front_workers; ++rank) {
      if (gone_.count(static_cast<uint64_t>(rank)) > 0) continue;
      ComingBatch batch{MemberAt(rank), step_, 1, has_classes_, BytesOf(1, has_classes_)};
      TESSERA_CHECK(queue_.Check(batch).ok());
      sent_[{batch.member, batch.step}] = {'\0'};
      Deliver(batch, std::string(batch.payload_bytes, '\0'), 5);
      asked.insert(static_cast<uint64_t>(rank));
    }
    const uint64_t step = step_;
    for (int turns = 0; step_ == step && turns < 100; ++turns) {
      if (!Turn()) break;
    }
    for (const uint64_t rank : asked) TESSERA_CHECK(answered_.count({MemberAt(rank), step}) > 0);
  }

  static uint64_t BytesOf(uint64_t rows, bool has_classes) {
    return rows * kWord * static_cast<uint64_t>((has_classes ? 1 : kOutputs) + kFeatures);
  }

  FuzzInput& in_;
  const LayerSplit split_;
  const int workers_;
  const uint64_t rank_;
  const bool has_classes_;
  ActivationQueue queue_;
  uint64_t generation_ = 1;
  uint64_t step_ = 0;
  unsigned stamp_ = 0;
  std::set<uint64_t> gone_, told_;  // told_: the queue knows of it
  using Key = std::pair<MemberId, uint64_t>;
  std::map<Key, std::set<char>> sent_;
  std::set<Key> computed_, answered_;
  std::map<Key, std::shared_ptr<const GradientAnswer>> answers_;
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::FuzzInput input(data, size);
  tessera::Events(&input).Run();
  return 0;
}

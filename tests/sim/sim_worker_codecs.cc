// How a simulated worker's updates become bytes: by the product's own coder, once for each exchange.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/codec/arrival_check.h"
#include "common/codec/selective_codec.h"
#include "common/codec/threshold_payload.h"
#include "common/codec/update_reader.h"
#include "tests/sim/dice.h"
#include "tests/sim/sim_worker.h"

namespace tessera {
namespace {

constexpr int64_t kRoom = 4096;

std::vector<char> BytesOf(UpdatePayload* payload) {
  std::vector<char> bytes;
  while (payload->left() > 0) {
    for (const grpc::Slice& slice : payload->Next(kRoom, nullptr)) {
      bytes.insert(bytes.end(), slice.begin(), slice.end());
    }
  }
  return bytes;
}

// Pieces end anywhere, as on a network.
Payload InPieces(const std::shared_ptr<const std::vector<char>>& bytes) {
  const auto size = static_cast<int64_t>(bytes->size());
  const auto cut = static_cast<int64_t>(Scrambled(bytes->size()) % (bytes->size() + 1));
  Payload payload;
  payload.Append({bytes->data(), cut}, bytes);
  payload.Append({bytes->data() + cut, size - cut}, bytes);
  return payload;
}

}  // namespace

void SimWorker::BeginCoding() {
  UpdateCoder::Options coding;
  coding.codecs = options_.codecs;
  coding.shape = *options_.shape;
  coding.seed = options_.job_seed;
  coding.rank = rank_;
  coder_ = std::make_unique<UpdateCoder>(std::move(coding));
  TakeUpHeld();
  checker_->OnBegins(member_, exchange_, Writer(), HeldBack());
}

std::vector<float> SimWorker::HeldBack() {
  std::vector<float> held;
  const std::vector<absl::Span<float>> all = *coder_->held_back();
  for (const absl::Span<float> of : all) {
    held.insert(held.end(), of.begin(), of.end());
  }
  return held;
}

// As WorkerSaver::TakeUp.
void SimWorker::TakeUpHeld() {
  if (!resumed_ || options_.mutation == Mutation::kForgetsHeld) return;
  const std::vector<absl::Span<float>> held = *coder_->held_back();
  for (size_t p = 0; p < held.size(); ++p) {
    std::copy(resumed_->arrays[p].begin(), resumed_->arrays[p].end(), held[p].begin());
  }
  if (!coder_->AdoptHeldBack().ok()) checker_->Violate("what was held back is not taken up");
  const absl::Span<float> learned = coder_->learned();
  std::copy_n(resumed_->learned.begin(), learned.size(), learned.begin());
}

std::optional<std::pair<MemberId, Exchange>> SimWorker::Writer() const {
  if (!resumed_) return std::nullopt;
  return std::make_pair(resumed_->member, Exchange(resumed_->progress.exchange()));
}

void SimWorker::KeepHeld(SimFolder::File* file) {
  file->member = member_;
  file->arrays.clear();
  const std::vector<absl::Span<float>> held = *coder_->held_back();
  for (const absl::Span<float> of : held) {
    file->arrays.emplace_back(of.begin(), of.end());
  }
  const absl::Span<float> learned = coder_->learned();
  file->learned.assign(learned.begin(), learned.end());
}

void SimWorker::EncodePush(bool flushes) {
  if (options_.mutation == Mutation::kForgetsFlush) flushes = false;
  const bool is_whole = options_.subnets == nullptr;
  const SubnetEntries::Part part =
      is_whole ? SubnetEntries::Part() : options_.subnets->SiteOf(*trained_);
  const KeySet& keys = !is_whole ? part.keys : keys_ != nullptr ? keys_->update_keys() : dense_;
  const EntryNumbers& numbers = is_whole ? numbers_ : part.numbers;
  std::vector<std::vector<float>> update;
  ConstParameterArrays arrays;
  for (const std::vector<int64_t>& of : numbers) {
    update.emplace_back();
    for (const int64_t number : of) {
      update.back().push_back(
          static_cast<float>(UpdateEntry(options_.seed, member_, exchange_, number)));
    }
  }
  if (options_.mutation == Mutation::kMixesParameters && update.size() > 1 && is_whole) {
    update[1].assign(update[1].size(), update[0][0]);
  }
  for (const std::vector<float>& of : update) arrays.emplace_back(of);
  OutgoingPush push;
  push.exchange = exchange_;
  push.flush = flushes;
  if (!coder_->Begin(push, keys, arrays).ok()) checker_->Violate("a push is not begun");
  std::vector<SentPart> parts;
  forms_.clear();
  forms_.reserve(doors_.size());
  coded_.clear();
  for (size_t server = 0; server < doors_.size(); ++server) {
    parts.push_back(EncodePart(server, keys, numbers));
    if (keys_ == nullptr) continue;
    const SparseKeys* const sparse = keys.is_sparse() ? keys.sparse[server].get() : nullptr;
    checker_->OnKeys(ShardId(server), member_, rank_, exchange_, sparse, flushes);
  }
  checker_->OnPush(member_, exchange_, parts, flushes);
  checker_->OnHeld(member_, exchange_, HeldBack());
}

SentPart SimWorker::EncodePart(size_t server, const KeySet& keys, const EntryNumbers& numbers) {
  UpdateRuns runs;
  std::unique_ptr<UpdatePayload> payload = coder_->Make(server, &runs);
  Coded coded;
  coded.codec = coder_->codec();
  const auto bytes = std::make_shared<const std::vector<char>>(BytesOf(payload.get()));
  coded.bytes = bytes;
  payload->Rewind();
  UpdateRuns again;
  if (options_.mutation == Mutation::kEncodesAgain) payload = coder_->Make(server, &again);
  if (BytesOf(payload.get()) != *bytes) {
    checker_->Violate(
        absl::StrCat("member ", member_.value(), ": a push that is sent again has other bytes"));
  }
  SentPart part;
  part.numbers = NumbersIn(numbers, keys.slices[server]);
  if (keys.is_sparse()) {
    const SparseKeys& sparse = *keys.sparse[server];
    std::vector<int64_t> sent;
    for (const int64_t place : sparse.entries.places()) sent.push_back(part.numbers[place]);
    part.numbers = std::move(sent);
    forms_.push_back(CodedForms::OfEntries(options_.codecs, sparse.entries.count(), sparse.on_all));
  } else {
    forms_.emplace_back(options_.codecs, keys.slices[server], *options_.shape);
  }
  const Payload received = InPieces(bytes);
  const auto count = static_cast<int64_t>(part.numbers.size());
  part.keys = forms_.back().Find(coded.codec);
  if (part.keys != nullptr) {
    coded.bad_entry = FirstBadEntry(*part.keys, received);
  } else {
    const absl::Status checked = options_.codecs.push->selective()->Check(received, count);
    if (!checked.ok()) checker_->Violate(checked.message());
    part.tau = ThresholdWords(received).tau();
  }
  part.seen.resize(part.numbers.size());
  UpdateReader(coded.codec, part.keys, received).Assign(count, 1, part.seen.data());
  coded_.push_back(std::move(coded));
  return part;
}

std::function<ReceivedPush()> SimWorker::MakePush(size_t server) const {
  return [member = member_, exchange = exchange_, base = bases_[server], examples = since_exchange_,
          kind = options_.kind, layout_hash = options_.layout_hash, coded = coded_[server]] {
    ReceivedPush push;
    push.member = member;
    push.exchange = exchange;
    push.base = base;
    push.examples = static_cast<uint64_t>(examples);
    push.kind = kind;
    push.layout_hash = layout_hash;
    push.codec = coded.codec;
    push.bad_entry = coded.bad_entry;
    push.payload = InPieces(coded.bytes);
    return push;
  };
}

}  // namespace tessera

// A shard of any method under any sequence of events, with pushes as the transport delivers them: no
// crash, and what is refused changes nothing.
//
//   input = job(1) (event(1) choices)*
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/codec/arrival_check.h"
#include "common/codec/selective_codec.h"
#include "common/rpc/key_set_message.h"
#include "server/core/core_messages.h"
#include "server/rpc/replica_table_message.h"
#include "server/shard/forms/layer_parts.h"
#include "server/shard/shard_messages.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_job.h"
#include "tests/fuzz/fuzz_payload.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  tessera::SetLogLevel(tessera::LogLevel::kError);
  return 0;
}

namespace tessera {
namespace {

// Work that follows from one event; more is a shard that never rests.
constexpr int kPiecesOfWorkMax = 10000;

class Events {
 public:
  Events(const FuzzJob& job, FuzzInput* input) : job_(job), in_(*input), shard_(job.MakeShard()) {
    shard_->SetPlan(FuzzPlan(1, 2));
  }

  void Run() {
    for (int events = 0; !in_.ended() && events < 200; ++events) One();
    // Whoever comes well is still served.
    Work();
    shard_->ReadNow();
    shard_->counters();
    shard_->WaitsFor();
  }

 private:
  MemberId Member() { return MemberId(in_.Below(5)); }
  Exchange AnExchange() {
    // About where the job is.
    const uint64_t near = shard_->counters().collecting.value();
    return in_.Bit() ? Exchange(near + in_.Below(3)) : Exchange(in_.Count());
  }

  void Work() {
    int pieces = 0;
    while (shard_->Advance(now_)) {
      TESSERA_CHECK(++pieces < kPiecesOfWorkMax);
      if (shard_->TakeCopy().has_value()) ++copies_;
    }
    if (shard_->TakeCopy().has_value()) ++copies_;
    TESSERA_CHECK(shard_->counters().staged_bytes >= 0);
  }

  std::string Bytes(int64_t wanted) {
    const uint8_t how = in_.Byte();
    if (how % 4 == 0) return std::string(in_.Piece());
    // Of the right size; 0x3f000000 is 0.5.
    std::string bytes(static_cast<size_t>(std::min<int64_t>(wanted, 1 << 16)), '\0');
    for (size_t i = 3; i < bytes.size(); i += 4) bytes[i] = how % 4 == 1 ? '\x3f' : in_.Byte();
    return bytes;
  }

  void TakeSubnet(ReceivedPush* push) {
    const Exchange after(push->exchange.value() - 1);
    const auto site = shard_->Read(push->member, after, SubnetPlace());
    if (in_.Bit() && site.ok() && site->has_value() && (*site)->entries != nullptr) {
      entries_ = (*site)->entries;
      push->keys = entries_->name();
      keys_ = entries_->forms().Find(push->codec);
      return;
    }
    v1::SubnetKeys keys;
    keys.ParseFromArray(in_.rest().data(),
                        static_cast<int>(std::min<size_t>(in_.rest().size(), 64)));
    const auto place = PlaceOf(keys);
    if (place.ok()) push->keys = *place;
  }

  void TakeCore(ReceivedPush* push) {
    NamedCore named;
    const std::shared_ptr<const Core> core = shard_->cores()->core();
    if (core != nullptr && in_.Bit()) named.name = core->name;
    if (in_.Bit()) named.name.number = in_.Count();
    if (in_.Bit()) named.name.signature.low ^= in_.Number(8);
    if (in_.Bit()) {
      named.key_form = in_.Byte();
      named.keys = std::string(in_.Piece());
    }
    push->keys = named;
    const auto* const entry = shard_->plan().Find(push->member);
    if (entry == nullptr) return;
    const auto place = shard_->cores()->PlaceOfPull(*entry, push->exchange, named.name);
    if (place == nullptr) return;
    entries_ = place;
    keys_ = place->forms().Find(push->codec);
  }

  void TakeLayers(const LayerParts& parts, ReceivedPush* push) {
    push->summed = in_.Byte() < 224 ? 1 + in_.Below(3) : in_.Count();
    if (in_.Byte() >= 240) {
      push->keys = ParameterRange{static_cast<int>(in_.Below(8)), static_cast<int>(in_.Below(8))};
    } else if (in_.Byte() < 240) {
      push->keys = in_.Bit() ? parts.front().layers() : parts.back().layers();
    }
    const auto* const layers = std::get_if<ParameterRange>(&push->keys);
    const LayerPart* const part = layers != nullptr ? parts.Find(*layers) : nullptr;
    if (part != nullptr) keys_ = part->forms().Find(push->codec);
  }

  void Push() {
    ReceivedPush push;
    push.member = in_.Bit() ? MemberId(1 + in_.Below(2)) : Member();
    push.exchange = AnExchange();
    if (job_.recipe.lockstep && in_.Bit()) push.exchange = shard_->counters().collecting;
    push.generation = shard_->plan().generation;
    push.base = in_.Bit() ? shard_->counters().version : Version(in_.Count());
    push.kind =
        in_.Bit() ? static_cast<int>(job_.recipe.payload) : static_cast<int>(in_.Byte()) - 1;
    push.layout_hash = in_.Byte() == 255 ? 0 : shard_->layout_hash();
    push.examples = in_.Count();
    push.whole_next = in_.Bit();
    push.from_peer = in_.Byte() == 1;
    if (in_.Bit()) push.codec = shard_->traits().codecs.push;
    keys_ = shard_->traits().dense_forms().Find(push.codec);
    const uint8_t what = in_.Byte();
    const bool has_subnets = shard_->traits().keys->OfPush(SubnetPlace(), 1).ok();
    if (has_subnets && what % 4 != 0) TakeSubnet(&push);
    if (shard_->cores() != nullptr && what % 4 != 0) TakeCore(&push);
    const auto* const parts = dynamic_cast<const LayerParts*>(shard_->traits().keys.get());
    if (parts != nullptr && what % 4 != 0) TakeLayers(*parts, &push);
    const std::string bytes = Bytes(keys_ == nullptr ? 16 : keys_->bytes());
    push.payload = PiecesOf(bytes, 1 + in_.Byte());
    // As PushCall does, which refuses what fails here.
    if (const SelectiveCodec* const selective = push.codec->selective()) {
      if (!selective->Check(push.payload, shard_->slices().size).ok()) return;
    } else if (!std::holds_alternative<SubnetPlace>(push.keys) &&
               !std::holds_alternative<NamedCore>(push.keys)) {
      if (push.payload.size() != keys_->bytes()) return;
      push.bad_entry = FirstBadEntry(*keys_, push.payload);
    } else if (IsPlain(push.codec)) {
      const int64_t entry_bytes = push.codec->traits().entry_bytes;
      if (push.payload.size() % entry_bytes != 0) return;
      const CodedKeys plain = CodedKeys::Plain(push.codec, push.payload.size() / entry_bytes);
      push.bad_entry = FirstBadEntry(plain, push.payload);
    }
    const uint64_t hash = shard_->ParametersHash();
    const ShardCounters before = shard_->counters();
    const int64_t size = push.payload.size();
    const auto accepted = shard_->Accept(std::move(push));
    const ShardCounters after = shard_->counters();
    TESSERA_CHECK(shard_->ParametersHash() == hash);
    TESSERA_CHECK(after.version == before.version);
    const bool staged = accepted.ok() && !accepted->duplicate && !accepted->need_keys;
    TESSERA_CHECK(after.staged_bytes == before.staged_bytes + (staged ? size : 0));
    TESSERA_CHECK(staged == (after.pushes == before.pushes + 1));
    if (!accepted.ok()) TESSERA_CHECK(!accepted.status().message().empty());
  }

  void ReadSomething() {
    const MemberId member = Member();
    const Exchange after = AnExchange();
    switch (in_.Below(5)) {
      case 0:
        (void)shard_->Read(member, after);
        break;
      case 1:
        (void)shard_->Read(member, Exchange(after.value() - 1), SubnetPlace());
        break;
      case 2: {
        CoreName name;
        name.number = in_.Count();
        if (shard_->cores() != nullptr && shard_->cores()->core() != nullptr && in_.Bit()) {
          name = shard_->cores()->core()->name;
        }
        (void)shard_->Read(member, after, NamedCore{name, 0, std::nullopt});
        break;
      }
      case 3:
        (void)shard_->ReadCore(member, in_.Count());
        break;
      case 4:
        // Readers that stay.
        if (kept_.size() < 8) kept_.push_back(shard_->ReadNow());
        break;
    }
  }

  void ChangeMembers() {
    Plan plan = shard_->plan();
    plan.generation = plan.generation.Next();
    if (!plan.members.empty() && in_.Bit()) {
      plan.members.erase(plan.members.begin() + in_.Below(plan.members.size()));
    }
    if (in_.Bit() && plan.members.size() < 4) {
      const uint64_t near = shard_->counters().collecting.value();
      const uint64_t last = plan.members.empty() ? 2 : plan.members.back().member.value();
      const uint64_t rank = plan.members.empty() ? 0 : plan.members.back().rank.value() + 1;
      plan.members.push_back({MemberId(std::max<uint64_t>(last + 1, 3 + plans_++)), Rank(rank),
                              Exchange(std::max<uint64_t>(near, 1) + 1 + in_.Below(3))});
    }
    shard_->SetPlan(plan);
  }

  void Replicate() {
    if (in_.Bit()) shard_->replica().AwaitCopy();
    v1::ChunkHeader header;
    const absl::string_view piece = in_.Piece();
    if (!header.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) return;
    if (in_.Bit()) header.mutable_replica()->set_plan_generation(shard_->plan().generation.value());
    const ReplicaTable table = TableOf(header);
    const size_t wanted = static_cast<size_t>(shard_->slices().size);
    const std::vector<float> values(in_.Bit() ? wanted : in_.Below(2 * wanted));
    (void)shard_->replica().TakeCopy(table, values);
    const auto copy = shard_->replica().MakeCopy(now_);
    if (!copy.ok()) return;
    // What a table says survives its message.
    v1::ChunkHeader sent;
    sent.set_version(copy->table.version.value());
    sent.set_examples(copy->table.examples);
    *sent.mutable_replica() = ToMessage(copy->table);
    TESSERA_CHECK(TableOf(sent).folded == copy->table.folded);
  }

  void One() {
    switch (in_.Below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Push();
      case 4:
        return Work();
      case 5:
        return ReadSomething();
      case 6: {
        const MemberId member = Member();
        const Exchange after = AnExchange();
        return shard_->Rest(member, after, {in_.Count(), in_.Bit()});
      }
      case 7:
        return ChangeMembers();
      case 8: {
        const bool ends = in_.Bit();
        const uint64_t proposal = in_.Below(8);
        if (ends) return shard_->Withdraw(proposal);
        shard_->Propose(proposal, AnExchange());
        return;
      }
      case 9: {
        const MemberId member = Member();
        const int64_t bytes = static_cast<int64_t>(in_.Number(3));
        if (shard_->Reserve(member, bytes) && in_.Bit()) shard_->Release(member, bytes);
        return;
      }
      case 10: {
        if (shard_->cores() == nullptr) return Replicate();
        v1::CoreQuestion question;
        const absl::string_view piece = in_.Piece();
        question.ParseFromArray(piece.data(), static_cast<int>(piece.size()));
        const std::optional<CoreReport> report = shard_->cores()->report();
        if (report.has_value() && in_.Bit()) {
          question.set_core(report->core);
          question.set_stage(static_cast<uint32_t>(report->stage) + in_.Below(3));
        }
        return shard_->cores()->Ask(FromMessage(question));
      }
      case 11:
        if (in_.Bit()) {
          now_ += absl::Milliseconds(in_.Count());
        } else if (in_.Bit()) {
          kept_.clear();
        } else {
          CopyOrder order;
          order.mark.number = ++orders_;
          order.after = in_.Bit() ? Exchange(0) : AnExchange();
          (void)shard_->Order(order);
        }
        return;
    }
  }

  const FuzzJob& job_;
  FuzzInput& in_;
  std::unique_ptr<Shard> shard_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<ReadResult> kept_;
  uint64_t plans_ = 0, orders_ = 0, copies_ = 0;
  // Of the push that is being made.
  const CodedKeys* keys_ = nullptr;
  std::shared_ptr<const ExchangedEntries> entries_;
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  Events(jobs[input.Below(jobs.size())], &input).Run();
  return 0;
}

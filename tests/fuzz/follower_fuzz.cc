// A host that follows shards, and any streams that come to it: no crash, a stream that is refused changes nothing
// that came by another one, and whatever takes over can be served.
//
//   input = job(1) (event(1) choices)*
// A chunk is a message of the input's bytes, and some of its fields are then put right by choice; or it is made,
// of one entry in its place.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/rpc/chunk.h"
#include "server/rpc/followed_shards.h"
#include "server/shard/log/shard_recorder.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_leader.h"

namespace tessera {
namespace {

// The stream is of the one, and nothing of what it brings is the other's.
constexpr ShardId kFollowed{0}, kBystander{1};

class Events {
 public:
  Events(const FuzzJob& job, FuzzInput* input) : job_(job), in_(*input), shards_(OptionsOf(job)) {
    shards_.Follow(kFollowed, term_);
    shards_.Follow(kBystander, term_);
    while (shards_.PrepareOne()) {
    }
    v1::LogHeader header = Header();
    header.set_shard(static_cast<uint32_t>(kBystander.value()));
    TESSERA_CHECK(shards_.Begin(header).ok());
    reader_ = std::make_unique<LogReader>(&shards_);
  }

  void Run() {
    for (int events = 0; !in_.ended() && events < 200; ++events) One();
    TakeOver();
    const std::unique_ptr<Shard> bystander = shards_.TakeOver(kBystander);
    TESSERA_CHECK(bystander != nullptr && bystander->counters().version == Version());
  }

 private:
  static FollowedShards::Options OptionsOf(const FuzzJob& job) {
    FollowedShards::Options options;
    options.job_digest = job.digest;
    options.layout_hash = job.facts.layout_hash;
    options.make_shard = [&job](ShardId) { return job.MakeShard(); };
    return options;
  }

  v1::LogHeader Header() const {
    v1::LogHeader header;
    header.set_job_digest(job_.digest);
    header.set_layout_hash(job_.facts.layout_hash);
    header.set_term(term_);
    return header;
  }

  void PutRight(uint8_t how, int64_t payload_bytes, v1::LogChunk* chunk) {
    if ((how & 1) != 0) {
      chunk->clear_header();
      if (!has_begun_) *chunk->mutable_header() = Header();
    }
    uint64_t position = position_;
    for (v1::LogEntry& entry : *chunk->mutable_entries()) {
      if ((how & 2) != 0) entry.set_position(++position);
      const bool is_last = &entry == &*chunk->mutable_entries()->rbegin();
      if ((how & 4) != 0) entry.set_payload_bytes(is_last ? payload_bytes : 0);
    }
  }

  void Chunk() {
    const uint8_t how = in_.Byte();
    const absl::string_view piece = in_.Piece();
    const grpc::Slice slice(piece.data(), piece.size());
    v1::LogChunk chunk;
    Payload payload;
    if (!ReadChunk(grpc::ByteBuffer(&slice, 1), &chunk, &payload).ok()) return;
    PutRight(how, payload.size(), &chunk);
    Take(chunk, std::move(payload));
  }

  void Take(const v1::LogChunk& chunk, Payload payload) {
    const absl::StatusOr<uint64_t> taken = reader_->Take(chunk, std::move(payload), now_);
    if (!taken.ok()) return Refused(taken.status());
    TESSERA_CHECK(*taken >= position_);
    has_begun_ = true;
    position_ = *taken;
    if (chunk.entries_size() > 0) version_ = chunk.entries().rbegin()->version();
  }

  v1::Plan MadePlan() {
    v1::Plan plan;
    plan.set_generation(in_.Below(8));
    for (uint64_t left = in_.Below(5); left > 0; --left) {
      v1::Member& member = *plan.add_members();
      member.set_member(in_.Below(4));
      member.set_rank(static_cast<uint32_t>(in_.Count()));
      member.set_first_exchange(in_.Count());
    }
    for (uint64_t left = in_.Below(4); left > 0; --left) {
      v1::DepartedSite& site = *plan.add_departed_sites();
      site.set_member(in_.Below(6));
      site.set_first_exchange(in_.Count());
      site.set_until_exchange(in_.Count());
    }
    if (in_.Bit()) return plan;
    v1::PartShares& shares = *plan.add_shares();
    shares.set_first_exchange(in_.Count());
    for (uint64_t member = 0; member < 3; ++member) {
      shares.add_members(member);
      shares.add_shares(static_cast<uint32_t>(in_.Count()));
    }
    return plan;
  }

  // An entry of small numbers in its place of the log, in a version that may be.
  void Made() {
    v1::LogChunk chunk;
    if (!has_begun_) *chunk.mutable_header() = Header();
    v1::LogEntry& entry = *chunk.add_entries();
    entry.set_position(position_ + 1);
    entry.set_version(version_ + in_.Below(2));
    int64_t bytes = 0;
    const int64_t slice = job_.shape.size * static_cast<int64_t>(sizeof(float));
    switch (in_.Below(9)) {
      case 0:
        entry.set_advance_ns(static_cast<int64_t>(in_.Count()));
        break;
      case 1:
        entry.mutable_fold()->set_member(in_.Below(4));
        entry.mutable_fold()->set_exchange(in_.Count());
        entry.mutable_fold()->set_examples(in_.Count());
        break;
      case 2:
        entry.mutable_commit()->set_time_ns(static_cast<int64_t>(in_.Count()));
        bytes = slice;
        break;
      case 3:
        *entry.mutable_plan() = MadePlan();
        break;
      case 4:
        entry.mutable_propose()->set_proposal(in_.Below(4));
        entry.mutable_propose()->mutable_member()->set_first_exchange(in_.Count());
        break;
      case 5:
        entry.set_withdraw(in_.Below(4));
        break;
      case 6:
        entry.mutable_rest()->set_member(in_.Below(4));
        entry.mutable_rest()->set_after_exchange(in_.Count());
        entry.mutable_rest()->set_number(in_.Below(4));
        entry.mutable_rest()->set_rests(in_.Bit());
        break;
      case 7: {
        v1::ShardImage& image = *entry.mutable_image();
        *image.mutable_plan() = MadePlan();
        image.set_next_exchange(in_.Count());
        image.set_pushes(in_.Count());
        for (uint64_t left = in_.Below(4); left > 0; --left) image.add_policy(in_.Count());
        for (const v1::Member& member : image.plan().members()) {
          v1::ShardImage::MemberImage& known = *image.add_members();
          known.set_member(member.member());
          known.set_folded(in_.Count());
          known.set_policy(in_.Count());
          if (in_.Bit()) known.set_rests_after(in_.Count());
        }
        bytes = slice * static_cast<int64_t>(1 + in_.Below(3));
        break;
      }
      case 8: {
        v1::PushHeader& header = *entry.mutable_push()->mutable_header();
        header.mutable_caller()->set_member(in_.Below(4));
        header.set_exchange(in_.Count());
        header.set_kind(static_cast<v1::PayloadKind>(job_.recipe.payload));
        header.set_layout_hash(job_.facts.layout_hash);
        header.set_base_version(in_.Bit() ? version_ : 0);
        bytes = slice;
        break;
      }
    }
    entry.set_payload_bytes(static_cast<uint64_t>(bytes));
    const auto values = std::make_shared<std::string>(static_cast<size_t>(bytes), '\0');
    Payload payload;
    payload.Append({values->data(), bytes}, values);
    Take(chunk, std::move(payload));
  }

  // A stream ends with the first error.
  void Refused(const absl::Status& why) {
    TESSERA_CHECK(absl::IsInvalidArgument(why) || absl::IsFailedPrecondition(why));
    TESSERA_CHECK(!why.message().empty());
    reader_ = std::make_unique<LogReader>(&shards_);
    // Of one that had begun nothing is left to lead with, and no other one is taken in this term.
    is_broken_ |= has_begun_;
    has_begun_ = false;
  }

  // Another stream of the term has no part in the first.
  void Intrude() {
    if (!has_begun_ || is_broken_) return;
    LogReader other(&shards_);
    v1::LogChunk chunk;
    *chunk.mutable_header() = Header();
    if (in_.Bit()) chunk.add_entries()->set_position(1);
    TESSERA_CHECK(absl::IsFailedPrecondition(other.Take(chunk, Payload(), now_).status()));
  }

  void Follow() {
    // In the same term what has come stays, and the stream is lost.
    const bool is_new = in_.Bit();
    if (is_new) ++term_;
    shards_.Follow(kFollowed, term_);
    while (shards_.PrepareOne()) {
    }
    Begin(is_new);
  }

  void Begin(bool is_new) {
    reader_ = std::make_unique<LogReader>(&shards_);
    has_begun_ = false;
    if (!is_new) return;
    is_broken_ = false;
    position_ = 0;
    version_ = 0;
  }

  void TakeOver() {
    const bool must_be_whole = has_begun_ && !is_broken_;
    std::unique_ptr<Shard> shard = shards_.TakeOver(kFollowed);
    TESSERA_CHECK(shard != nullptr || !must_be_whole);
    if (shard != nullptr) Serve(std::move(shard));
    ++term_;
    shards_.Follow(kFollowed, term_);
    while (shards_.PrepareOne()) {
    }
    Begin(/*is_new=*/true);
  }

  // As one that leads.
  void Serve(std::unique_ptr<Shard> shard) {
    FuzzLeader leader(job_, std::move(shard));
    for (int round = 0; round < 3; ++round) {
      leader.Work(now_);
      const std::vector<PlanMember> members = leader.served().shard().plan().members;
      for (size_t i = 0; i < std::min<size_t>(3, members.size()); ++i) {
        leader.Push(members[i].member, 0.5f, [](const absl::StatusOr<PushAccepted>&) {});
      }
      now_ += absl::Seconds(2);
    }
    leader.Work(now_);
    leader.served().shard().ReadNow();
    leader.served().shard().WaitsFor();
    ShardRecorder::ImageOf(&leader.served().shard());
    TESSERA_CHECK(leader.served().shard().counters().staged_bytes >= 0);
  }

  void One() {
    switch (in_.Below(16)) {
      case 8:
      case 9:
      case 10:
      case 11:
        return Made();
      case 12:
        return Intrude();
      case 13:
        return Follow();
      case 14:
        return TakeOver();
      case 15:
        now_ += absl::Milliseconds(in_.Count());
        return;
      default:
        return Chunk();
    }
  }

  const FuzzJob& job_;
  FuzzInput& in_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint64_t term_ = 1;
  FollowedShards shards_;
  std::unique_ptr<LogReader> reader_;
  bool has_begun_ = false;  // the stream, and has not been refused
  bool is_broken_ = false;  // the term's one was
  uint64_t position_ = 0;
  uint64_t version_ = 0;  // after the last entry
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const auto& jobs = LeadingJobs();
  Events(*jobs[input.Below(jobs.size())], &input).Run();
  return 0;
}

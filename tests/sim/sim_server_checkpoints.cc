// A simulated server's part in checkpoints: as AttachLink and ServerCheckpoints.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/restore.h"
#include "server/shard/shard_messages.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/sim/sim_server.h"

namespace tessera {
namespace {

// A disk that is slow now and then.
constexpr absl::Duration kWriteMost = absl::Milliseconds(40);
constexpr absl::Duration kSlowWriteMost = absl::Milliseconds(1500);
constexpr absl::Duration kReadMost = absl::Milliseconds(30);

}  // namespace

absl::Status SimServer::CheckCaller(Generation generation) const {
  if (generation >= generation_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("generation is ", generation.value(), ", want ", generation_.value(),
                   "; the job was restored, drop the update and pull"));
}

// As AttachLink::HandleCheckpoint and ServerCheckpoints::Save.
void SimServer::TakeOrder(const v1::CheckpointOrder& text) {
  if (last_part_.part().number() == text.mark().number()) return Say(last_part_);
  CopyOrder order;
  order.mark = {text.mark().number(), text.mark().folder_step()};
  order.after = Exchange(text.after_exchange());
  const Exchange wanted = order.after;
  const bool is_late = mutation_ == Mutation::kCopiesLate && rank_ == ShardId(0);
  if (is_late && wanted != Exchange(0)) order.after = wanted.Next();
  served_.Order(order, [this, wanted, order](const absl::StatusOr<ShardCopy>& copy) {
    if (copy.ok()) return Write(*copy, wanted);
    v1::ShardMessage refusal;
    refusal.mutable_part()->set_number(order.mark.number);
    refusal.mutable_part()->set_error(std::string(copy.status().message()));
    Say(refusal);
  });
}

// As ShardSaver: one after the other.
void SimServer::Write(const ShardCopy& copy, Exchange wanted) {
  SimFolder::File file;
  file.arrays.push_back(ValuesOf(*copy.values.snapshot));
  for (const auto& state : copy.states) file.arrays.push_back(*state);
  file.copy = checker_->OnCopied(copy_, wanted, copy.values.version, file.arrays[0]);
  file.listed.name =
      ShardFileName(static_cast<int64_t>(rank_.value()), coordinator_->state().facts().servers);
  v1::ShardMessage answer;
  *answer.mutable_part() = ToPart(copy);
  Dice& dice = network_->dice();
  const absl::Duration longest = dice.Chance(0.1) ? kSlowWriteMost : kWriteMost;
  saver_free_ =
      std::max(saver_free_, network_->now()) + dice.Between(absl::ZeroDuration(), longest);
  const bool fails = options_.has_faults && dice.Chance(0.02);
  const uint64_t folder_step = copy.order.mark.folder_step;
  network_->After(node_, saver_free_ - network_->now(),
                  [this, file, answer, folder_step, fails]() mutable {
                    absl::StatusOr<CheckpointFile> written = absl::UnavailableError("disk error");
                    if (!fails) written = options_.folder->Write(folder_step, file);
                    v1::CheckpointPart& part = *answer.mutable_part();
                    if (written.ok()) {
                      part.mutable_file()->set_name(written->name);
                      part.mutable_file()->set_bytes(static_cast<uint64_t>(written->bytes));
                      part.mutable_file()->set_sum(written->sum);
                    } else {
                      part.set_error(std::string(written.status().message()));
                    }
                    last_part_ = answer;
                    Say(answer);
                  });
}

// As AttachLink::HandleRestore. Nothing else is done until the files are read: it waits in ShardThread.
void SimServer::HearRestore(const v1::RestoreOrder& order) {
  const Generation generation(order.generation());
  checker_->OnRestoreOrder(generation, order.step());
  if (last_restored_.restored().generation() >= order.generation()) return Say(last_restored_);
  if (restoring_ >= generation) return;
  restoring_ = generation;
  SetGeneration(generation);
  if (options_.on_restore) options_.on_restore(generation);
  // As ShardThread::Replace.
  served_.Refuse(absl::FailedPreconditionError(
      "the job was restored, drop the update and pull; its members join again"));
  reads_.clear();
  promises_.clear();
  selected_.reset();
  const absl::Status restored = Restore(generation, order.step());
  const absl::Duration taken = network_->dice().Between(absl::ZeroDuration(), kReadMost);
  if (!options_.node) network_->Freeze(node_, network_->now() + taken);
  network_->After(node_, taken, [this, generation, restored] {
    last_restored_.mutable_restored()->set_generation(generation.value());
    last_restored_.mutable_restored()->set_error(std::string(restored.message()));
    Say(last_restored_);
  });
}

// As ServerCheckpoints::Restore.
absl::Status SimServer::Restore(Generation generation, uint64_t step) {
  if (options_.has_faults && network_->dice().Chance(0.01)) {
    return absl::UnavailableError("the disk cannot be read");
  }
  const absl::StatusOr<const SimFolder::Whole*> found = options_.folder->Open(step);
  if (!found.ok()) {
    checker_->Violate(absl::StrCat("shard ", rank_.value(), ": ", found.status().message()));
    return found.status();
  }
  const SimFolder::Whole& whole = **found;
  if (mutation_ == Mutation::kGoesOnAfterRestore && rank_ == ShardId(0) &&
      shard().counters().version != Version()) {
    const ReadResult now = shard().ReadNow();
    checker_->OnRestored(copy_, options_.lead_term, generation, step, now.version,
                         ValuesOf(*now.snapshot));
    return absl::OkStatus();
  }
  Made made = options_.make_shard();
  const ShardSlices& slices = made.shard->slices();
  absl::StatusOr<SavedShard> saved = SavedShardOf(whole.manifest, StepFolderName(step), slices);
  if (!saved.ok()) {
    checker_->Violate(saved.status().message());
    return saved.status();
  }
  const SimFolder::File& file = whole.files.at(
      ShardFileName(static_cast<int64_t>(rank_.value()), coordinator_->state().facts().servers));
  const bool forgets = mutation_ == Mutation::kForgetsSavedStates;
  saved->read_rows = [&](int parameter, int state, int64_t row_begin, int64_t row_end, float* out) {
    const size_t array = static_cast<size_t>(state + 1);
    if (array >= file.arrays.size()) return absl::InvalidArgumentError("a state is missing");
    for (const Slice& slice : slices.slices) {
      if (slice.parameter != parameter) continue;
      const int64_t begin = slice.offset + (row_begin - slice.row_begin) * slice.columns;
      const int64_t size = (row_end - row_begin) * slice.columns;
      std::copy_n(file.arrays[array].begin() + begin, size, out);
      if (forgets && array > 0) std::fill_n(out, size, 0.0f);
    }
    return absl::OkStatus();
  };
  const absl::Status loaded = made.shard->Load(*saved);
  if (!loaded.ok()) {
    checker_->Violate(loaded.message());
    return loaded;
  }
  checker_->SetShard(copy_, nullptr);
  copy_ = made.copy;
  served_.Replace(std::move(made.shard));
  checker_->SetShard(copy_, &shard());
  const ReadResult now = shard().ReadNow();
  checker_->OnRestored(copy_, options_.lead_term, generation, step, now.version,
                       ValuesOf(*now.snapshot));
  FollowSelection();
  return absl::OkStatus();
}

}  // namespace tessera

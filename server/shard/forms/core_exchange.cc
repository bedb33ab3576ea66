#include "server/shard/forms/core_exchange.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "common/codec/decoder.h"

namespace tessera {
namespace {

// Decoding and the rule work on runs that stay in the first-level cache.
constexpr int64_t kCoreTile = 4096;

TESSERA_VECTOR_CLONES
void AddScaled(const float* __restrict u, float scale, int64_t count, float* __restrict g) {
  for (int64_t i = 0; i < count; ++i) g[i] += scale * u[i];
}

constexpr int64_t kFloat = sizeof(float);

absl::Status Contradicts(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("image of a core: ", what));
}

Payload::Piece PieceOf(const float* values, int64_t count) {
  return {reinterpret_cast<const char*>(values), count * kFloat};
}

// What a selection that is taken from an image reads.
struct Searched {
  // One of the two.
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<float> values;
  std::shared_ptr<const std::vector<float>> gradient;
};

class SparseSource final : public EntrySource {
 public:
  SparseSource(std::shared_ptr<const SparsePlace> place, std::shared_ptr<const Snapshot> snapshot)
      : place_(std::move(place)), snapshot_(std::move(snapshot)), walk_(place_->keys().entries) {}

  const float* Next(int64_t count, float* scratch) override {
    for (int64_t done = 0; done < count;) {
      const Block& block = *snapshot_->blocks()[block_];
      const int64_t end = block_begin_ + block.size();
      const EntryWalk::Run run = walk_.Next(end, count - done);
      GatherEntries(place_->keys().entries, run.begin, run.end,
                    block.data() + (run.begin - block_begin_), scratch + done);
      done += run.count;
      if (walk_.place() < end) continue;
      ++block_;
      block_begin_ = end;
    }
    return scratch;
  }

 private:
  const std::shared_ptr<const SparsePlace> place_;
  const std::shared_ptr<const Snapshot> snapshot_;
  EntryWalk walk_;
  size_t block_ = 0;
  int64_t block_begin_ = 0;  // in the dense order
};

}  // namespace

std::unique_ptr<EntrySource> SparsePlace::Source(std::shared_ptr<const Snapshot> snapshot) const {
  return std::make_unique<SparseSource>(
      std::static_pointer_cast<const SparsePlace>(shared_from_this()), std::move(snapshot));
}

CoreExchange::CoreExchange(const Options& options, BlockStore* store)
    : options_(options), sums_(options.slices->size), touched_((options.slices->size + 63) / 64) {
  BeginSelection(0, store);
}

bool CoreExchange::Knows(const CoreName& name) const {
  absl::MutexLock lock(&names_mutex_);
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

// The signature of an empty set is known without its keys: a server may own nothing of a core.
bool CoreExchange::WantsKeysOf(const CoreName& name) const {
  return !Knows(name) && name.signature != SignatureOf(options_.layout_hash, name.number,
                                                       EntrySet(options_.slices->size));
}

std::shared_ptr<const Core> CoreExchange::Find(const CoreName& name) const {
  for (const std::shared_ptr<const Core>& core : known_) {
    if (core->name == name) return core;
  }
  return nullptr;
}

// The highest number counts as latest, whatever the order in which cores become known.
void CoreExchange::Remember(std::shared_ptr<const Core> core) {
  if (latest_ == nullptr || core->name.number > latest_->name.number) latest_ = core;
  known_.push_back(std::move(core));
  // The latest stays whatever comes.
  if (known_.size() > kKnownMax) known_.erase(known_.begin() + (known_.front() == latest_));
  absl::MutexLock lock(&names_mutex_);
  names_.clear();
  for (const std::shared_ptr<const Core>& known : known_) names_.push_back(known->name);
}

// A core is its number and its keys. A second one of a number known here would be another job's or a stale worker's.
absl::StatusOr<std::shared_ptr<const Core>> CoreExchange::Read(absl::string_view where,
                                                               const NamedCore& named) const {
  for (const std::shared_ptr<const Core>& core : known_) {
    if (core->name.number != named.name.number) continue;
    return absl::FailedPreconditionError(absl::StrCat(where, ": core ", named.name.number,
                                                      " has other keys here; pull before pushing"));
  }
  absl::StatusOr<EntrySet> keys = DecodeKeys(named.key_form, *named.keys, options_.slices->size);
  if (!keys.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", keys.status().message()));
  }
  if (SignatureOf(options_.layout_hash, named.name.number, *keys) != named.name.signature) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": keys of core ", named.name.number,
                                                   " are not those that its signature names"));
  }
  return std::make_shared<const Core>(Core{named.name, *std::move(keys)});
}

absl::StatusOr<CoreExchange::Found> CoreExchange::PlaceOfPush(
    absl::string_view where, const PlanMember& member, Exchange exchange,
    const std::optional<NamedCore>& named) {
  if (!named.has_value()) return Found();
  if (PushesAll(options_.share, exchange.value())) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": keys are sparse, want dense in this exchange, as every ",
                     options_.share.every, "th pushes all entries"));
  }
  const uint64_t number = named->name.number;
  // In lockstep everybody uses the core of this exchange; otherwise a worker may be some cores behind, but not ahead.
  const uint64_t wanted =
      options_.lockstep ? CoreOf(options_.share, exchange.value()) : cores() - 1;
  if (options_.lockstep ? number != wanted : number >= cores()) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": core is ", number, ", want ",
                                                      options_.lockstep ? "" : "at most ", wanted,
                                                      "; ask for its keys before pushing"));
  }
  std::shared_ptr<const Core> core = Find(named->name);
  if (core == nullptr && !named->keys.has_value()) {
    // A core that has no entries here has no bytes of keys.
    const NamedCore empty{named->name, static_cast<int>(KeyForm::kGaps), std::string()};
    absl::StatusOr<std::shared_ptr<const Core>> read = Read(where, empty);
    if (!read.ok()) return Found{nullptr, true};
    core = *std::move(read);
  } else if (core == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(core, Read(where, *named));
  }
  return Found{Place(member, exchange, std::move(core)), false};
}

void CoreExchange::OnAccepted(const SparsePlace& place) {
  if (Find(place.keys().core->name) == nullptr) Remember(place.keys().core);
}

std::shared_ptr<const SparsePlace> CoreExchange::PlaceOfPull(const PlanMember& member,
                                                             Exchange exchange,
                                                             const CoreName& name) {
  std::shared_ptr<const Core> core = Find(name);
  return core == nullptr ? nullptr : Place(member, exchange, std::move(core));
}

bool CoreExchange::IsDrawn(MemberId member, Exchange exchange, uint64_t core) const {
  const auto found = drawn_.find(member);
  if (found == drawn_.end()) return false;
  // A member has at most two exchanges under way: the one pushed and the one pulled, at places of their own.
  const Drawn& drawn = found->second[exchange.value() % 2];
  return drawn.place != nullptr && drawn.exchange == exchange &&
         drawn.place->keys().core->name.number == core;
}

std::shared_ptr<const SparsePlace> CoreExchange::Place(const PlanMember& member, Exchange exchange,
                                                       std::shared_ptr<const Core> core) {
  Drawn& drawn = drawn_[member.member][exchange.value() % 2];
  if (drawn.place != nullptr && drawn.exchange == exchange &&
      drawn.place->keys().core->name == core->name) {
    return drawn.place;
  }
  // Drawing the explorer takes as long as a pass over the model; a place is drawn once and kept for push and pull.
  SparseKeys keys =
      DrawKeys(options_.share, ExplorerOf(member, exchange), options_.shape->size, std::move(core));
  CodedForms forms = CodedForms::OfEntries(options_.codecs, keys.entries.count(), keys.on_all);
  drawn.exchange = exchange;
  drawn.place = std::make_shared<const SparsePlace>(std::move(keys), std::move(forms));
  return drawn.place;
}

bool CoreExchange::Prepare(const Plan& plan, const absl::flat_hash_map<MemberId, Exchange>& next) {
  if (latest_ == nullptr) return false;
  for (const PlanMember& member : plan.members) {
    const auto found = next.find(member.member);
    if (found == next.end()) continue;
    const Exchange exchange = found->second;
    // The core of that exchange is still to come.
    if (options_.lockstep && CoreOf(options_.share, exchange.value()) != latest_->name.number) {
      continue;
    }
    if (IsDrawn(member.member, exchange, latest_->name.number)) continue;
    Place(member, exchange, latest_);
    return true;
  }
  return false;
}

void CoreExchange::Forget(MemberId member) {
  drawn_.erase(member);
  pushed_all_.erase(member);
}

void CoreExchange::Fold(const SparsePlace* place, const CodedKeys& keys, const Payload& payload,
                        float weight) {
  PayloadReader reader(keys, payload);
  if (place == nullptr) {
    reader.Accumulate(options_.slices->size, weight, sums_.data());
    has_all_ = true;
    return;
  }
  const EntrySet& entries = place->keys().entries;
  float tile[kCoreTile];
  // Entries of the push are decoded in tiles and added where they belong.
  for (EntryWalk walk(entries); walk.left() > 0;) {
    const EntryWalk::Run run = walk.Next(entries.size(), kCoreTile);
    reader.Assign(run.count, weight, tile);
    AddEntries(entries, run.begin, run.end, tile, sums_.data() + run.begin);
  }
  for (size_t w = 0; w < touched_.size(); ++w) touched_[w] |= entries.words()[w];
}

void CoreExchange::Commit(const Update& update, const UpdateRule& rule, BlockStore* store) {
  if (has_all_) {
    CommitAll(update, rule, store);
  } else {
    CommitTouched(update, rule, store);
  }
  std::fill(touched_.begin(), touched_.end(), 0);
  has_all_ = false;
}

void CoreExchange::CommitAll(const Update& update, const UpdateRule& rule, BlockStore* store) {
  gradient_.resize(sums_.size());
  // Sums of magnitudes and the gradient are those of this exchange, from which the next core follows.
  magnitudes_ = {};
  moved_since_ = false;
  for (int i = 0; i < store->block_count(); ++i) {
    const BlockStore::Rewrite block = store->BeginRewrite(i);
    for (int64_t begin = 0; begin < block.size; begin += kCoreTile) {
      const int64_t count = std::min(kCoreTile, block.size - begin);
      float* const u = sums_.data() + store->offset(i) + begin;
      float* const g = gradient_.data() + store->offset(i) + begin;
      rule.Apply(update, u, block.in + begin, block.out + begin, nullptr, count);
      // A core is of the last exchange before it where all make the same; elsewhere each member has pushed all
      // entries at a time of its own.
      if (options_.lockstep) std::fill_n(g, count, 0.0f);
      AddScaled(u, update.scale, count, g);
      std::fill_n(u, count, 0.0f);
      AddMagnitudes({block.out + begin, g, count}, &magnitudes_);
    }
  }
}

void CoreExchange::CommitTouched(const Update& update, const UpdateRule& rule, BlockStore* store) {
  moved_since_ = true;
  const EntrySet touched(options_.slices->size, touched_);
  float u[kCoreTile];
  float w[kCoreTile];
  EntryWalk walk(touched);
  for (int i = 0; i < store->block_count() && walk.left() > 0; ++i) {
    const int64_t begin = store->offset(i);
    const int64_t end = begin + store->block(i).size();
    if (touched.CountIn(begin, end) == 0) continue;
    // Brings the walk to the block's first entry without taking any.
    walk.Next(begin, 0);
    float* const values = store->BeginEdit(i);
    while (walk.place() < end) {
      const EntryWalk::Run run = walk.Next(end, kCoreTile);
      float* const all = values + (run.begin - begin);
      // The entries that were pushed are gathered, the rule is applied to them side by side, and they are put back.
      float* const sums = sums_.data() + run.begin;
      GatherEntries(touched, run.begin, run.end, sums, u);
      GatherEntries(touched, run.begin, run.end, all, w);
      rule.Apply(update, u, w, w, nullptr, run.count);
      ScatterEntries(touched, run.begin, run.end, w, all);
      std::fill_n(u, run.count, 0.0f);
      ScatterEntries(touched, run.begin, run.end, u, sums);
    }
  }
}

void CoreExchange::MaybeSelect(const absl::flat_hash_set<MemberId>& begun, Exchange collecting,
                               BlockStore* store) {
  const uint64_t last = search_.has_value() ? search_number_ : cores() - 1;
  if (options_.lockstep) {
    // Exchanges that nobody made count, too: whoever makes the next one waits for its core.
    const uint64_t wanted = CoreOf(options_.share, collecting.value());
    if (wanted > last) BeginSelection(wanted, store);
    return;
  }
  // One selection at a time, and only once each member that has begun has pushed all its entries since the last one.
  if (search_.has_value() || pushed_all_.empty()) return;
  for (const MemberId member : begun) {
    if (!pushed_all_.contains(member)) return;
  }
  BeginSelection(last + 1, store);
}

void CoreExchange::BeginSelection(uint64_t number, BlockStore* store) {
  // What is read stays as it is: a snapshot, and a gradient that nothing is added to any more.
  struct Owner {
    std::shared_ptr<const Snapshot> snapshot;
    std::shared_ptr<const std::vector<float>> gradient;
  };
  auto owner = std::make_shared<Owner>();
  owner->snapshot = store->TakeSnapshot();
  owner->gradient = std::make_shared<const std::vector<float>>(std::exchange(gradient_, {}));
  searched_gradient_ = owner->gradient;
  std::vector<SignificanceRun> runs;
  const float* g = owner->gradient->empty() ? nullptr : owner->gradient->data();
  for (const std::shared_ptr<const Block>& block : owner->snapshot->blocks()) {
    runs.push_back({block->data(), g, block->size()});
    if (g != nullptr) g += block->size();
  }
  MagnitudeSums sums = std::exchange(magnitudes_, {});
  // Those of the last push of all entries will not do where that came elsewhere only, as its sender was lost
  // in the middle of it, nor where others have pushed since. Before the first core there is no g anywhere.
  if (number > 0 && (g == nullptr || moved_since_)) {
    sums = {};
    for (const SignificanceRun& run : runs) AddMagnitudes(run, &sums);
  }
  Search(number, std::move(runs), sums, std::move(owner));
  pushed_all_.clear();
}

void CoreExchange::Search(uint64_t number, std::vector<SignificanceRun> runs, MagnitudeSums sums,
                          std::shared_ptr<const void> owner) {
  CoreSearch::Options search;
  search.core = number;
  search.runs = std::move(runs);
  search.owner = std::move(owner);
  search.slices = options_.slices;
  search.parameters = static_cast<int>(options_.shape->parameters.size());
  search.entries = options_.shape->size;
  search.sums = sums;
  search_number_ = number;
  search_.emplace(std::move(search));
  questions_.clear();
}

bool CoreExchange::AdvanceSelection() {
  if (!search_.has_value() || !search_->Advance()) return false;
  // A report is what the coordinator adds up over all servers; its number says that there is a new one.
  if (search_->report().has_value()) ++report_number_;
  if (search_->core().has_value()) EndSelection();
  return true;
}

void CoreExchange::EndSelection() {
  const EntrySet& keys = *search_->core();
  const CoreName name{search_number_, SignatureOf(options_.layout_hash, search_number_, keys)};
  Remember(std::make_shared<const Core>(Core{name, keys}));
  search_.reset();
  searched_gradient_.reset();
}

void CoreExchange::Save(Exchange exchange, std::vector<float>* saved) const {
  saved->assign(options_.slices->size, 0.0f);
  // After a push of all entries what a restart needs is the gradient that the next core follows from; otherwise it is
  // the core itself, as ones.
  if (PushesAll(options_.share, exchange.value())) {
    // A copy is made before anything else is done, and a selection takes an answer from all servers.
    const bool has_gradient = searched_gradient_ != nullptr && !searched_gradient_->empty();
    if (has_gradient) saved->assign(searched_gradient_->begin(), searched_gradient_->end());
  } else if (latest_ != nullptr) {
    const std::vector<float> ones(latest_->keys.count(), 1.0f);
    ScatterEntries(latest_->keys, 0, latest_->keys.size(), ones.data(), saved->data());
  }
}

void CoreExchange::Load(Exchange exchange, uint64_t saved_every, std::vector<float> saved,
                        BlockStore* store) {
  search_.reset();
  searched_gradient_.reset();
  if (!options_.lockstep) return BeginSelection(0, store);
  const uint64_t number = CoreOf(options_.share, exchange.Next().value());
  // The exchange between cores may have been another one when the checkpoint was made.
  CoreShare share = options_.share;
  if (saved_every > 0) share.every = saved_every;
  if (!PushesAll(share, exchange.value())) {
    std::vector<uint64_t> words((saved.size() + 63) / 64);
    // The core was saved as ones.
    for (size_t i = 0; i < saved.size(); ++i) {
      words[i / 64] |= static_cast<uint64_t>(saved[i] != 0) << i % 64;
    }
    EntrySet keys(options_.slices->size, std::move(words));
    const CoreName name{number, SignatureOf(options_.layout_hash, number, keys)};
    return Remember(std::make_shared<const Core>(Core{name, std::move(keys)}));
  }
  gradient_ = std::move(saved);
  magnitudes_ = {};
  // The sums that the commit made, in its order.
  const auto snapshot = store->TakeSnapshot();
  const float* g = gradient_.data();
  for (const std::shared_ptr<const Block>& block : snapshot->blocks()) {
    for (int64_t begin = 0; begin < block->size(); begin += kCoreTile) {
      const int64_t count = std::min(kCoreTile, block->size() - begin);
      AddMagnitudes({block->data() + begin, g + begin, count}, &magnitudes_);
    }
    g += block->size();
  }
  BeginSelection(number, store);
}

std::optional<CoreReport> CoreExchange::report() const {
  return search_.has_value() ? search_->report() : std::nullopt;
}

// A core is known from its last question on, not from when the work for it was done: among the others it has
// the same place on a standby.
void CoreExchange::Ask(const CoreQuestion& question) {
  // The selection's pieces are finished first, so that the answer is to what it has found.
  while (AdvanceSelection()) {
  }
  if (!search_.has_value() || !search_->Ask(question)) return;
  questions_.push_back(question);
  if (question.stage == CoreStage::kDone) AdvanceSelection();
}

int64_t CoreExchange::memory_bytes() const {
  const int64_t slice = options_.slices->bytes();
  // Sums, gradient, and the one that a selection reads; bits.
  return 3 * slice + slice / 32 * (4 + static_cast<int64_t>(known_.size() + 2 * drawn_.size()));
}

CoresImage CoreExchange::TakeImage(const Snapshot& now, Payload* values) const {
  CoresImage image;
  image.pushed_all.assign(pushed_all_.begin(), pushed_all_.end());
  std::sort(image.pushed_all.begin(), image.pushed_all.end());
  image.has_gradient = !gradient_.empty();
  image.magnitudes = magnitudes_;
  image.moved_since = moved_since_;
  if (image.has_gradient) {
    const auto copy = std::make_shared<const std::vector<float>>(gradient_);
    values->Append(PieceOf(copy->data(), options_.slices->size), copy);
  }
  if (search_.has_value()) {
    const CoreSearch::Options& from = search_->options();
    SelectionImage& selection = image.selection.emplace();
    selection.core = search_number_;
    selection.sums = from.sums;
    selection.questions = questions_;
    for (size_t i = 0; i < from.runs.size(); ++i) {
      // Blocks that were not rewritten since are in the values that the image has already.
      selection.has_values |= from.runs[i].w != now.blocks()[i]->data();
      selection.has_gradient |= from.runs[i].g != nullptr;
    }
    for (size_t i = 0; selection.has_values && i < from.runs.size(); ++i) {
      values->Append(PieceOf(from.runs[i].w, from.runs[i].size), from.owner);
    }
    for (size_t i = 0; selection.has_gradient && i < from.runs.size(); ++i) {
      values->Append(PieceOf(from.runs[i].g, from.runs[i].size), from.owner);
    }
  }
  for (const std::shared_ptr<const Core>& core : known_) {
    EncodedKeys keys = EncodeKeys(core->keys);
    image.known.push_back(
        {core->name, static_cast<int>(keys.form), static_cast<int64_t>(keys.bytes.size())});
    const auto bytes = std::make_shared<const std::string>(std::move(keys.bytes));
    values->Append({bytes->data(), static_cast<int64_t>(bytes->size())}, bytes);
  }
  return image;
}

absl::Status CoreExchange::SetImage(const CoresImage& image, ImageReader* values,
                                    BlockStore* store) {
  const int64_t size = options_.slices->size;
  // Sizes are checked before any array is allocated: the image comes from another process.
  if (values->left() < image.arrays() * size * kFloat) return Contradicts("values are missing");
  if (image.known.size() > kKnownMax) return Contradicts("has too many cores");
  search_.reset();
  searched_gradient_.reset();
  pushed_all_.clear();
  pushed_all_.insert(image.pushed_all.begin(), image.pushed_all.end());
  gradient_.resize(image.has_gradient ? size : 0);
  values->Read(static_cast<int64_t>(gradient_.size()), gradient_.data());
  magnitudes_ = image.magnitudes;
  moved_since_ = image.moved_since;
  const auto searched = std::make_shared<Searched>();
  if (image.selection.has_value()) {
    if (!image.selection->has_values) searched->snapshot = store->TakeSnapshot();
    searched->values.resize(image.selection->has_values ? size : 0);
    values->Read(static_cast<int64_t>(searched->values.size()), searched->values.data());
    std::vector<float> gradient(image.selection->has_gradient ? size : 0);
    values->Read(static_cast<int64_t>(gradient.size()), gradient.data());
    searched->gradient = std::make_shared<const std::vector<float>>(std::move(gradient));
  }
  known_.clear();
  latest_.reset();
  for (const CoresImage::Known& known : image.known) {
    if (known.keys_bytes < 0 || known.keys_bytes > values->left()) {
      return Contradicts("keys are missing");
    }
    std::string bytes(static_cast<size_t>(known.keys_bytes), '\0');
    values->Read(known.keys_bytes, static_cast<void*>(&bytes[0]));
    NamedCore named{known.name, known.key_form, std::move(bytes)};
    TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const Core> core, Read("image of a core", named));
    Remember(std::move(core));
  }
  questions_.clear();
  if (!image.selection.has_value()) return absl::OkStatus();
  // The selection of a core that is known here already would end with two of the same number.
  if (image.selection->core < cores()) return Contradicts("selects a core that was selected");
  std::vector<SignificanceRun> runs;
  const float* w = searched->values.empty() ? nullptr : searched->values.data();
  const float* g = searched->gradient->empty() ? nullptr : searched->gradient->data();
  for (int i = 0; i < store->block_count(); ++i) {
    const int64_t count = store->block(i).size();
    runs.push_back({w == nullptr ? searched->snapshot->blocks()[i]->data() : w, g, count});
    if (w != nullptr) w += count;
    if (g != nullptr) g += count;
  }
  searched_gradient_ = searched->gradient;
  Search(image.selection->core, std::move(runs), image.selection->sums, searched);
  // The questions that the leader was asked are asked again in their order; the answers follow from values and
  // questions.
  for (const CoreQuestion& question : image.selection->questions) {
    const size_t asked = questions_.size();
    Ask(question);
    if (questions_.size() == asked) return Contradicts("has a question that nobody asks");
  }
  return absl::OkStatus();
}

}  // namespace tessera

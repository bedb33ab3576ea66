#include "server/shard/forms/subnet_rounds.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/codec/decoder.h"

namespace tessera {
namespace {

// Entries that are decoded at a time, at least: they stay in the first-level cache.
constexpr int64_t kRoundTile = 4096;

// Finds places to write in ascending order of position, a block at a time.
class Editor {
 public:
  explicit Editor(BlockStore* store) : store_(store) {}

  // Valid until the next call. A row lies in one block.
  float* At(int64_t position) {
    // Places ascend, so that blocks are passed over and never looked for.
    while (position >= end_) {
      ++block_;
      begin_ = store_->offset(block_);
      end_ = begin_ + store_->block(block_).size();
      data_ = nullptr;
    }
    // A block is opened for editing only when a place in it is written.
    if (data_ == nullptr) data_ = store_->BeginEdit(block_);
    return data_ + (position - begin_);
  }
  // Entries from `position` on that At() gives at once.
  int64_t Room(int64_t position) const { return end_ - position; }

 private:
  BlockStore* const store_;
  int block_ = -1;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  float* data_ = nullptr;
};

}  // namespace

SubnetRounds::SubnetRounds(const ModelShape& shape, const ShardSlices& slices, NeuronGroups groups,
                           uint64_t seed, const CodecChoice& codecs)
    : shape_(shape), slices_(slices), groups_(std::move(groups)), seed_(seed), codecs_(codecs) {
  // Shared parameters are the same for all sites of all rounds.
  const SiteSubnet any(shape_, groups_, {seed_, 0, 0, {1}}, slices_, codecs_);
  int64_t row_size = kRoundTile;
  for (const SiteSubnet::Part& part : any.parts()) {
    row_size = std::max(row_size, part.row_size);
    if (part.shared_offset >= 0) shared_runs_.push_back({part.position(0), part.size()});
  }
  shared_.resize(any.shared_size());
  scratch_.resize(row_size);
}

void SubnetRounds::Open(Exchange round, const std::vector<MemberId>& sites,
                        const std::vector<uint32_t>& shares) {
  // With equal sites and shares the subnets that were cut stay valid.
  if (round == round_ && sites == sites_ && shares == shares_) return;
  TESSERA_CHECK(shares.size() == sites.size());
  round_ = round;
  sites_ = sites;
  shares_ = shares;
  subnets_.assign(sites_.size(), nullptr);
}

std::shared_ptr<const SiteSubnet> SubnetRounds::Of(MemberId member) {
  const auto found = std::find(sites_.begin(), sites_.end(), member);
  if (found == sites_.end()) return nullptr;
  const size_t site = found - sites_.begin();
  // A site's subnet is cut when it is first asked for, as a server may have hundreds of sites.
  if (subnets_[site] == nullptr) {
    SubnetPlace place;
    place.seed = seed_;
    place.round = round_.value();
    place.site = static_cast<uint32_t>(site);
    place.shares = shares_;
    subnets_[site] =
        std::make_shared<const SiteSubnet>(shape_, groups_, std::move(place), slices_, codecs_);
  }
  return subnets_[site];
}

void SubnetRounds::Fold(const SiteSubnet& site, const CodedKeys& keys, const Payload& payload,
                        float weight, BlockStore* store) {
  TESSERA_CHECK(keys.entries() == site.size() && payload.size() == keys.bytes());
  PayloadReader reader(keys, payload);
  Editor editor(store);
  float* const scratch = scratch_.data();
  for (const SiteSubnet::Part& part : site.parts()) {
    if (part.shared_offset >= 0) {
      // Shared parameters are summed in f64 and averaged when the round ends; others have one owner and are assigned.
      double* sum = shared_.data() + part.shared_offset;
      for (int64_t left = part.size(); left > 0;) {
        const int64_t count = std::min(left, kRoundTile);
        reader.Assign(count, 1.0f, scratch);
        for (int64_t i = 0; i < count; ++i) {
          const double x = static_cast<double>(weight) * scratch[i];
          sum[i] = shared_weight_ == 0 ? x : sum[i] + x;
        }
        sum += count;
        left -= count;
      }
    } else if (part.columns == nullptr) {
      for (int64_t row = 0; row < part.row_count;) {
        // Entries of a vector lie apart; each is written by itself.
        const int64_t count = std::min(part.row_count - row, kRoundTile);
        reader.Assign(count, 1.0f, scratch);
        for (int64_t i = 0; i < count; ++i, ++row) *editor.At(part.position(row)) = scratch[i];
      }
    } else {
      for (int64_t row = 0; row < part.row_count; ++row) {
        float* const out = editor.At(part.position(row));
        // A part with all columns is decoded into its row, without a detour.
        if (part.columns->is_whole()) {
          reader.Assign(part.row_size, 1.0f, out);
          continue;
        }
        reader.Assign(part.row_size, 1.0f, scratch);
        part.columns->Scatter(scratch, out);
      }
    }
  }
  shared_weight_ += weight;
}

void SubnetRounds::Commit(BlockStore* store) {
  TESSERA_CHECK(shared_weight_ > 0);
  Editor editor(store);
  const double* sum = shared_.data();
  for (const Run& run : shared_runs_) {
    for (int64_t done = 0; done < run.size;) {
      float* const out = editor.At(run.position + done);
      const int64_t count = std::min(run.size - done, editor.Room(run.position + done));
      // Divided by the weights that came, so that a member which left in mid-round does not count.
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(sum[i] / shared_weight_);
      sum += count;
      done += count;
    }
  }
  shared_weight_ = 0;
}

}  // namespace tessera

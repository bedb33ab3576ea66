// What a shard that trains subnets keeps beside its blocks: how the open round is cut, and the sums of
// what its sites share.
//
//   fold     the site's values replace its entries of the blocks, but for shared ones, which are
//            summed
//   commit   shared entries become their mean over the sites that returned
//
// Parts are disjoint, so what a site does not return stays as it was. Sums are formed in the order of
// the folds, in f64: the mean of equal values is that value.
#ifndef TESSERA_SERVER_SHARD_FORMS_SUBNET_ROUNDS_H_
#define TESSERA_SERVER_SHARD_FORMS_SUBNET_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/site_subnet.h"

namespace tessera {

// The shard's thread.
class SubnetRounds {
 public:
  // `shape` and `slices` must outlive this. `seed` and `codecs` are the job's.
  SubnetRounds(const ModelShape& shape, const ShardSlices& slices, NeuronGroups groups,
               uint64_t seed, const CodecChoice& codecs = {});

  // `round` is open and has these sites, in order, with these shares. What was computed for the
  // same ones stays.
  void Open(Exchange round, const std::vector<MemberId>& sites,
            const std::vector<uint32_t>& shares);
  // The open round's cut for `member`, made when first asked for; nullptr: it is no site. Holders
  // may keep it beyond the round.
  std::shared_ptr<const SiteSubnet> Of(MemberId member);

  // `payload` is the site's, written as `keys`, one of its forms, say. Blocks that none of its rows
  // lie in are not touched.
  void Fold(const SiteSubnet& site, const CodedKeys& keys, const Payload& payload, float weight,
            BlockStore* store);
  void Commit(BlockStore* store);

  int64_t memory_bytes() const {
    return static_cast<int64_t>(shared_.size() * sizeof(double) + scratch_.size() * sizeof(float));
  }

 private:
  const ModelShape& shape_;
  const ShardSlices& slices_;
  const NeuronGroups groups_;
  const uint64_t seed_;
  const CodecChoice codecs_;

  Exchange round_;
  std::vector<MemberId> sites_;
  std::vector<uint32_t> shares_;
  std::vector<std::shared_ptr<const SiteSubnet>> subnets_;  // by site

  std::vector<float> scratch_;
  // Shared entries of this shard: where they are in the dense order, and their weighted sums.
  struct Run {
    int64_t position = 0;
    int64_t size = 0;
  };
  std::vector<Run> shared_runs_;
  std::vector<double> shared_;
  double shared_weight_ = 0;  // 0: shared_ holds nothing
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_SUBNET_ROUNDS_H_

// Several shards of one model that is trained in subnets, beside the same model as whole matrices that
// are cut entry by entry.
#ifndef TESSERA_TESTS_SERVER_SHARD_SUBNET_CLUSTER_H_
#define TESSERA_TESTS_SERVER_SHARD_SUBNET_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"
#include "server/shard/shard.h"
#include "tests/common/keyset/fully_connected.h"

namespace tessera {

class SubnetCluster {
 public:
  // `has_tail`: pushes of all entries are taken, too, as deltas.
  SubnetCluster(const v1::Model& model, int servers, uint64_t seed = 5,
                const std::optional<ShardLimits>& limits = std::nullopt, bool has_tail = false);

  int servers() const { return static_cast<int>(shards_.size()); }
  Shard& shard(int s) { return *shards_[s]; }
  const ModelShape& shape() const { return shape_; }
  void SetPlan(const Plan& plan);
  // All work that is due on all shards.
  void Settle();

  // Where member `site + 1` is in a round of members 1 .. sites.
  SubnetPlace Place(uint64_t round, uint32_t site, uint32_t sites) const;
  // Is the entry in the site's subnet? By its parts alone.
  bool Has(const SubnetPlace& place, int parameter, int64_t row, int64_t column) const;
  bool IsShared(int parameter) const;

  // A value for each entry of a subnet on one server, in the order of the wire.
  using EntryFunction = std::function<float(int parameter, int64_t row, int64_t column)>;
  std::vector<float> OnServer(int server, const SubnetPlace& place, const EntryFunction& f) const;
  void ForEach(const EntryFunction& f) const;

  // The whole matrices, as they should be.
  float& At(int parameter, int64_t row, int64_t column) {
    return model_[parameter][row * shape_.parameters[parameter].columns + column];
  }
  // Every shard's values are the model's, bit for bit.
  bool IsEqual();

  // The values that the shard gives `member` in `round`, gathered in uneven pieces.
  absl::StatusOr<std::optional<std::vector<float>>> Fetch(int server, uint64_t member,
                                                          uint64_t round);
  // A push that the shard would like, in pieces with borders inside entries.
  ReceivedPush Good(int server, uint64_t member, const SubnetPlace& place, const EntryFunction& f);
  // The same of all entries.
  ReceivedPush GoodWhole(int server, uint64_t member, uint64_t exchange, const EntryFunction& f);
  // Pushes `f` of the site to one server; it must be accepted.
  void Push(int server, uint64_t member, const SubnetPlace& place, const EntryFunction& f);

 private:
  ReceivedPush GoodPush(int server, uint64_t member, uint64_t exchange, std::vector<float> entries);

  const v1::Model description_;
  const ModelShape shape_;
  const NeuronGroups groups_;
  const uint64_t seed_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::vector<float>> model_;
  // Which neurons are in the part of a place (seed, round, site, shares), by group: asked of every entry.
  using PartKey = std::tuple<uint64_t, uint64_t, uint32_t, std::vector<uint32_t>, int>;
  mutable std::map<PartKey, std::vector<bool>> owned_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_SHARD_SUBNET_CLUSTER_H_

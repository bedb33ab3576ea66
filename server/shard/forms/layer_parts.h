// What a shard owns of each half of the layers, where every member exchanges one of them.
#ifndef TESSERA_SERVER_SHARD_FORMS_LAYER_PARTS_H_
#define TESSERA_SERVER_SHARD_FORMS_LAYER_PARTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/codec/coded_keys.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/shard/forms/job_keys.h"
#include "server/shard/forms/run_entries.h"

namespace tessera {

// A push is the sum of so many updates at most: one of each worker of a job, and then some.
constexpr uint64_t kSummedMax = 65535;

// What a shard owns of one half. As both halves are ranges of parameters, each is one run.
class LayerPart final : public RunEntries {
 public:
  LayerPart(const ParameterRange& layers, EntryRun run, CodedForms forms)
      : RunEntries(layers, run, std::move(forms)), layers_(layers) {}

  const ParameterRange& layers() const { return layers_; }
  bool is_nothing() const override { return count() == 0; }

 private:
  const ParameterRange layers_;
};

// The keys of a job whose pushes are of one half each, or of none.
class LayerParts final : public JobKeys {
 public:
  // `slices` are all that the shard owns of `shape`, which is cut.
  LayerParts(const LayerCut& cut, const ShardSlices& slices, const ModelShape& shape,
             const CodecChoice& codecs);

  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfPush(const NamedKeys& keys,
                                                                 uint64_t summed) const override;
  bool moves_parts() const override { return true; }
  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfRead(
      const NamedKeys& keys) const override;

  const LayerPart& front() const { return *front_; }
  const LayerPart& back() const { return *back_; }
  // nullptr: of no half. An empty range is one of no entries.
  const LayerPart* Find(const ParameterRange& layers) const { return Of(layers).get(); }

 private:
  std::shared_ptr<const LayerPart> Of(const ParameterRange& layers) const;
  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> Named(const ParameterRange& layers) const;

  const std::shared_ptr<const LayerPart> front_;
  const std::shared_ptr<const LayerPart> back_;
  const std::shared_ptr<const LayerPart> nothing_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_LAYER_PARTS_H_

// What a shard owns of each half of the layers, where every member exchanges one of them.
#ifndef TESSERA_SERVER_SHARD_LAYER_PARTS_H_
#define TESSERA_SERVER_SHARD_LAYER_PARTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/codec/coded_keys.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {

// A push is the sum of so many updates at most: one of each worker of a job, and then some.
constexpr uint64_t kSummedMax = 65535;

// Entries [begin, end) of the shard's dense order. As both halves are ranges of parameters, each is one run.
struct LayerPart {
  ParameterRange layers;
  int64_t begin = 0;
  int64_t end = 0;
  // How they are written. Of no entries nothing is sent, whatever the codec.
  CodedForms forms;

  int64_t entries() const { return end - begin; }
};

// Constant after construction; any thread.
class LayerParts {
 public:
  // `slices` are all that the shard owns of `shape`, which is cut.
  LayerParts(const LayerCut& cut, const ShardSlices& slices, const ModelShape& shape,
             const CodecChoice& codecs);

  const LayerPart& front() const { return front_; }
  const LayerPart& back() const { return back_; }
  // nullptr: of no half. An empty range is one of no entries.
  const LayerPart* Find(const ParameterRange& layers) const;

 private:
  const LayerPart front_;
  const LayerPart back_;
  const LayerPart nothing_;
};

// The part that keys of `layers` name, in a job that has `parts`.
//   kInvalidArgument  it has none (nullptr), and its keys are `wanted`, in words; or the range is none of them
absl::StatusOr<const LayerPart*> FindPart(const LayerParts* parts, const ParameterRange& layers,
                                          absl::string_view wanted);

// Of a push whose keys are of `layers`, or are `keys`, in words: its part, or nullptr where neither it nor the
// job is of layers.
//   kInvalidArgument  as above; or keys are not of layers, and must be; or `summed` is not 1 to kSummedMax, and 1
//                     without layers
absl::StatusOr<const LayerPart*> FindPushedPart(const LayerParts* parts,
                                                const std::optional<ParameterRange>& layers,
                                                uint64_t summed, absl::string_view keys,
                                                absl::string_view wanted);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LAYER_PARTS_H_

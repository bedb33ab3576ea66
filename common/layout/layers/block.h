// residual and concat: blocks of layers, whose parts' outputs are added or put side by side.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_BLOCK_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_BLOCK_H_

#include <vector>

#include "common/layout/layers/layer_kind.h"
#include "proto/job.pb.h"

namespace tessera {

LayerKind ResidualKind();
LayerKind ConcatKind();

// One list of layers within a block.
struct BlockPart {
  // What stands between the block's name and a layer's index in the names of parameters, which are those that the same
  // nesting has in PyTorch: "layers", "shortcut", "branches.1"; a copy of a repeat has its number, "0".
  std::string name;
  // The key of the list in the job file: "residual.layers", "concat.branches[1].layers".
  std::string key;
  const google::protobuf::RepeatedPtrField<v1::Layer>* layers = nullptr;
};

// The parts of a block, each of which reads what the block reads; the parts of a repeat are its copies, of which each
// reads what the one before it makes. Empty: the layer is no block.
std::vector<BlockPart> PartsOf(const v1::Layer& layer);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_BLOCK_H_

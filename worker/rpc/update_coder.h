// How a worker's updates become payloads, push by push, and what its codec has held back.
#ifndef TESSERA_WORKER_RPC_UPDATE_CODER_H_
#define TESSERA_WORKER_RPC_UPDATE_CODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/codec/codec.h"
#include "common/codec/residual.h"
#include "common/codec/threshold.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/update_payload.h"

namespace tessera {

// One thread, but that payloads of different servers may be read on different ones.
class UpdateCoder {
 public:
  struct Options {
    CodecChoice codecs;
    // What is exchanged; used where the codec looks at whole parameters or holds something back.
    ModelShape shape;
    // The job's, and whose random numbers.
    uint64_t seed = 0;
    Rank rank;
    // Replicated: the one part is asked for once for every server, and all get the same bytes.
    Placement placement = Placement::kSharded;
  };
  explicit UpdateCoder(Options options);

  // A push begins, whose payloads are asked for next. All are borrowed until the next one.
  void Begin(const OutgoingPush& push, const KeySet& keys, const ConstParameterArrays& update);
  // The codec of that push: f32 where it is flushed.
  const Codec& codec() const { return codec_; }
  // The part of keys.slices[server], whose entries are in `runs`, which must outlive it.
  std::unique_ptr<UpdatePayload> Make(size_t server, UpdateRuns* runs);

  // nullptr: the codec holds nothing back.
  const Residual* residual() const { return residual_.has_value() ? &*residual_ : nullptr; }
  // By parameter; empty: nothing is held back. Between pushes.
  std::vector<absl::Span<float>> held_back();
  // Bytes that are held beside the update, of a model of so many entries.
  static int64_t MemoryNeeded(const CodecChoice& codecs, int64_t entries);

 private:
  void LeadTau();
  std::unique_ptr<UpdatePayload> MakeOnce(size_t server, UpdateRuns* runs);
  // The entries of a core and an explorer, put together.
  std::unique_ptr<UpdatePayload> MakeSparse(size_t server, UpdateRuns* runs);
  std::unique_ptr<UpdatePayload> MakeThreshold(const ShardSlices& slices);
  std::unique_ptr<UpdatePayload> MakeFlush(const ShardSlices& slices);

  const Options options_;
  std::optional<Residual> residual_;
  std::optional<Tau> tau_;
  // The push under way.
  Codec codec_;
  bool flushes_ = false;
  Exchange exchange_;
  const KeySet* keys_ = nullptr;
  const ConstParameterArrays* update_ = nullptr;
  // Of all servers, where something is held back: what was sent is taken from that once.
  std::shared_ptr<const std::vector<char>> made_;
  std::vector<std::vector<float>> sparse_;  // by server
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_UPDATE_CODER_H_

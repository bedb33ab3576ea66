// Payloads of updates that lie in the host's memory.
#ifndef TESSERA_WORKER_RPC_UPDATE_CODER_H_
#define TESSERA_WORKER_RPC_UPDATE_CODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/codec/codec.h"
#include "common/codec/residual.h"
#include "common/codec/selective_codec.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/push_coder.h"
#include "worker/rpc/update_payload.h"

namespace tessera {

class UpdateCoder final : public PushCoder {
 public:
  using Options = CodingOptions;
  explicit UpdateCoder(Options options);

  // Does not fail.
  absl::Status Begin(const OutgoingPush& push, const KeySet& keys,
                     const ConstParameterArrays& update) override;
  const Codec& codec() const override { return codec_; }
  std::unique_ptr<UpdatePayload> Make(size_t server, UpdateRuns* runs) override;

  // nullptr: the codec holds nothing back.
  const Residual* residual() const { return residual_.has_value() ? &*residual_ : nullptr; }
  absl::StatusOr<std::vector<absl::Span<float>>> held_back() override;
  absl::Span<float> learned() override {
    return selector_ != nullptr ? selector_->state() : absl::Span<float>();
  }
  // Bytes that are held beside the update, of a model of so many entries.
  static int64_t MemoryNeeded(const CodecChoice& codecs, int64_t entries);

 private:
  // Entries [begin, begin + count) of a parameter.
  struct Pushed {
    int parameter = 0;
    int64_t begin = 0;
    int64_t count = 0;
  };
  // What the push is of, on all servers together.
  std::vector<Pushed> PushedRuns() const;
  void LearnOfUpdate();
  std::unique_ptr<UpdatePayload> MakeOnce(size_t server, UpdateRuns* runs);
  // The entries of a core and an explorer, put together.
  std::unique_ptr<UpdatePayload> MakeSparse(size_t server, UpdateRuns* runs);
  std::unique_ptr<UpdatePayload> MakeSelected(const ShardSlices& slices);
  std::unique_ptr<UpdatePayload> MakeFlush(const ShardSlices& slices);

  const Options options_;
  std::optional<Residual> residual_;
  std::unique_ptr<EntrySelector> selector_;  // nullptr: all entries are sent
  // The push under way.
  Codec codec_;
  bool flushes_ = false;
  Exchange exchange_;
  const KeySet* keys_ = nullptr;
  const ConstParameterArrays* update_ = nullptr;
  // The payload for all servers, where something is held back: what was sent is taken from the residual once.
  std::shared_ptr<const std::vector<char>> made_;
  std::vector<std::vector<float>> sparse_;  // by server
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_UPDATE_CODER_H_

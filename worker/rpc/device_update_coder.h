// Payloads of updates that lie in a device's memory: coded there, with what is held back beside them, so
// that only the bytes to be sent cross to the host.
#ifndef TESSERA_WORKER_RPC_DEVICE_UPDATE_CODER_H_
#define TESSERA_WORKER_RPC_DEVICE_UPDATE_CODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/host_view.h"
#include "worker/rpc/device_entries.h"
#include "worker/rpc/device_selection.h"
#include "worker/rpc/push_coder.h"

namespace tessera {

// The bytes are UpdateCoder's. All payloads of a push are made in Begin, one wait for all of them; a
// selective codec's take three (device_selection.h).
class DeviceUpdateCoder final : public PushCoder {
 public:
  // `sets` are shared with whoever takes values of the same entries.
  //   kResourceExhausted  no memory for what is held back
  static absl::StatusOr<std::unique_ptr<DeviceUpdateCoder>> Create(
      CodingOptions options, std::shared_ptr<DeviceEntrySets> sets);

  absl::Status Begin(const OutgoingPush& push, const KeySet& keys,
                     const ConstParameterArrays& update) override;
  const Codec& codec() const override { return codec_; }
  std::unique_ptr<UpdatePayload> Make(size_t server, UpdateRuns* runs) override;
  absl::StatusOr<std::vector<absl::Span<float>>> held_back() override;
  absl::Status AdoptHeldBack() override;
  absl::Span<float> learned() override {
    return selection_ ? selection_->selector().state() : absl::Span<float>();
  }

 private:
  DeviceUpdateCoder(CodingOptions options, std::shared_ptr<DeviceEntrySets> sets);

  // One server's bytes within bytes_ and host_bytes_.
  struct Part {
    int64_t begin = 0;
    int64_t size = 0;
  };
  float* HeldAt(const Slice& slice) const;
  const float* UpdateAt(const Slice& slice) const;
  PayloadRandom RandomOf(size_t server) const;
  // Each makes the payloads of all parts.
  absl::Status CodeDense();
  absl::Status CodeSparse();
  absl::Status MakeRoom(const std::vector<CodedKeys>& keys);
  // What was coded for it comes to the host, while the next one's is coded.
  void FetchPart(size_t server);

  const CodingOptions options_;
  Backend& device_;
  const std::shared_ptr<DeviceEntrySets> sets_;
  std::optional<DeviceSelection> selection_;  // where the codec is selective
  // All parameters', one behind the other; empty: nothing is held back.
  Buffer<float> residual_;
  std::vector<int64_t> residual_offsets_;
  HostView<float> residual_view_;  // once it was asked for

  // The push under way.
  Codec codec_;
  bool flushes_ = false;
  Exchange exchange_;
  const KeySet* keys_ = nullptr;
  const ConstParameterArrays* update_ = nullptr;
  std::vector<Part> parts_;
  Buffer<char> bytes_;
  Buffer<char> host_bytes_;
  Buffer<float> entries_;                     // of a core and an explorer, put together
  Buffer<float> lost_;                        // of those of one server, what their codec loses
  std::vector<DeviceSelection::Bytes> made_;  // by selection_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_DEVICE_UPDATE_CODER_H_

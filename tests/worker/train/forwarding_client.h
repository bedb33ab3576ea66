// Another client's work, for those that look on or break in.
#ifndef TESSERA_TESTS_WORKER_TRAIN_FORWARDING_CLIENT_H_
#define TESSERA_TESTS_WORKER_TRAIN_FORWARDING_CLIENT_H_

#include "worker/exchange/parameter_client.h"

namespace tessera {

class ForwardingClient : public ParameterClient {
 public:
  explicit ForwardingClient(ParameterClient* client) : client_(*client) {}
  absl::StatusOr<ExchangeResult> Pull(Exchange after, const KeySet& keys,
                                      const ParameterArrays& values) override {
    return client_.Pull(after, keys, values);
  }
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    return client_.PushPull(push, update_keys, update, value_keys, values);
  }
  absl::StatusOr<ExchangeResult> Read(Exchange after, IdleNotice word,
                                      const ParameterArrays& values) override {
    return client_.Read(after, word, values);
  }
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override {
    return client_.ReadRows(rows, values);
  }
  Traffic traffic() const override { return client_.traffic(); }

 private:
  ParameterClient& client_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_FORWARDING_CLIENT_H_

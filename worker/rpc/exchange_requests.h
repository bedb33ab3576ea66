// What an exchange says to the servers: the header of its pushes, and its request for values, either a pull's or the
// fetch of a subnet's. What differs from server to server is set by whoever sends it there.
#ifndef TESSERA_WORKER_RPC_EXCHANGE_REQUESTS_H_
#define TESSERA_WORKER_RPC_EXCHANGE_REQUESTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// One thread's. Messages are reused from exchange to exchange.
class ExchangeRequests {
 public:
  // Values come in `pull_codec`, but for those outside of exchanges.
  ExchangeRequests(const v1::Caller& caller, uint64_t layout_hash, const Codec& pull_codec);

  // A push of `keys`, written in `codec`. `kind`: unless the push says another.
  void SetPush(const OutgoingPush& push, const KeySet& keys, const Codec& codec,
               v1::PayloadKind kind);
  // Asks for the values of `keys`, once the exchange `after` counts. A subnet's are asked for by a fetch, others by a
  // pull.
  void AskValues(const KeySet& keys, Exchange after, IdleNotice word);
  // Asks for the values of `keys` as they are in mid-training, f32: no part of any exchange.
  void AskOutside(const KeySet& keys, Exchange after, IdleNotice word);
  // Asks for `rows` alone as they are in mid-training, f32: no part of any exchange.
  void AskRows(const KeySet& dense_keys, const RowRange& rows);

  v1::PushHeader* push() { return &push_; }
  v1::PullRequest* pull() { return &pull_; }
  v1::SubnetRequest* fetch() { return &fetch_; }
  // What is fetched; nullopt: it is a pull.
  const std::optional<SubnetPlace>& subnet() const { return subnet_; }
  bool is_outside() const { return !subnet_.has_value() && pull_.outside_exchange(); }
  bool is_rows() const { return !subnet_.has_value() && pull_.keys().has_rows(); }

 private:
  void AskPull(const KeySet& keys, Exchange after, IdleNotice word);

  const std::string pull_codec_;
  v1::PushHeader push_;
  v1::PullRequest pull_;
  v1::SubnetRequest fetch_;
  std::optional<SubnetPlace> subnet_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_EXCHANGE_REQUESTS_H_

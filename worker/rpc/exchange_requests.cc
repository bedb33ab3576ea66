#include "worker/rpc/exchange_requests.h"

#include "common/base/check.h"
#include "common/rpc/key_set_message.h"

namespace tessera {
namespace {

// f32 needs none.
std::string NameOnWire(const Codec& codec) { return codec == Codec() ? "" : codec->name(); }

}  // namespace

ExchangeRequests::ExchangeRequests(const v1::Caller& caller, uint64_t layout_hash,
                                   const Codec& pull_codec)
    : pull_codec_(NameOnWire(pull_codec)) {
  *push_.mutable_caller() = caller;
  push_.set_layout_hash(layout_hash);
  *pull_.mutable_caller() = caller;
  *fetch_.mutable_caller() = caller;
}

void ExchangeRequests::SetPush(const OutgoingPush& push, const KeySet& keys, const Codec& codec,
                               v1::PayloadKind kind) {
  push_.set_codec(NameOnWire(codec));
  push_.set_exchange(push.exchange.value());
  push_.set_examples(push.examples);
  push_.set_kind(push.kind ? static_cast<v1::PayloadKind>(*push.kind) : kind);
  push_.set_whole_next(push.whole_next);
  // A sum of several updates exists only where workers train some layers each.
  push_.set_summed(keys.layers.has_value() ? push.summed : 0);
  if (keys.subnet.has_value()) {
    // The subnet's round is the exchange of its push, else keys and payload would be of different cuts.
    TESSERA_CHECK(keys.subnet->round == push.exchange.value());
    *push_.mutable_keys()->mutable_subnet() = ToMessage(*keys.subnet);
  } else {
    SetKeys(keys, push_.mutable_keys());
  }
}

void ExchangeRequests::AskValues(const KeySet& keys, Exchange after, IdleNotice word) {
  if (!keys.subnet.has_value()) {
    AskPull(keys, after, word);
    pull_.set_outside_exchange(false);
    pull_.set_codec(pull_codec_);
    return;
  }
  // Values of a subnet are those of the next round's cut.
  TESSERA_CHECK(keys.subnet->round == after.Next().value());
  subnet_ = *keys.subnet;
  SetKeys(keys, &fetch_);
  fetch_.set_codec(pull_codec_);
}

void ExchangeRequests::AskOutside(const KeySet& keys, Exchange after, IdleNotice word) {
  AskPull(keys, after, word);
  pull_.set_outside_exchange(true);
  // Values outside of exchanges are f32, whatever the job's codec.
  pull_.clear_codec();
}

void ExchangeRequests::AskRows(const KeySet& dense_keys, const RowRange& rows) {
  // Rows are read for evaluation: no exchange is waited for.
  AskOutside(dense_keys, Exchange(0), IdleNotice());
  v1::RowKeys& keys = *pull_.mutable_keys()->mutable_rows();
  keys.set_parameter(static_cast<uint32_t>(rows.parameter));
  keys.set_row_begin(static_cast<uint64_t>(rows.row_begin));
  keys.set_row_end(static_cast<uint64_t>(rows.row_end));
}

void ExchangeRequests::AskPull(const KeySet& keys, Exchange after, IdleNotice word) {
  subnet_.reset();
  pull_.set_after_exchange(after.value());
  pull_.set_rest(word.number);
  pull_.set_rests(word.rests);
  SetKeys(keys, pull_.mutable_keys());
}

}  // namespace tessera
